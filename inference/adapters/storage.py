"""What tenants keep in the store of blobs, as the rows have it, and what their tiers allow."""

from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Count, F, Q, QuerySet, Sum

from gpu_workers.protocol.sealed import FRAME_BYTES, HEADER_BYTES, TAG_BYTES
from inference.models import Adapter, AdapterVersion, Upload, UploadPart
from inference.models.adapter import HELD_STATES, IN_PROGRESS
from inference.models.upload import UploadStatus
from inference.uploads.bounds import upload_bytes_allowed
from tenants.models import Tenant

# As `sealed_size` has it; a part has at least one byte.
_SEALED: Final = (
    F("size_bytes") + HEADER_BYTES + (F("size_bytes") + FRAME_BYTES - 1) / FRAME_BYTES * TAG_BYTES
)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """`count` of one kind, and bytes: those that lie in the store, sealed; those that count against
    the tier's bound, with what is on its way; the bound, None for all tenants together."""

    count: int
    stored_bytes: int
    counted_bytes: int
    max_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Adapters in service with all their versions, and uploads that take parts or wait for use."""

    adapters: Kept
    uploads: Kept


def storage_of(tenant: Tenant | None) -> Storage:
    """Return what a tenant keeps now; without one, what all do, in an operator's scope."""
    only = {} if tenant is None else {"tenant": tenant}
    adapters = Adapter.objects.filter(**only, archived_at=None).count()
    versions = _sums(
        AdapterVersion.objects.filter(**only),
        stored=Sum("stored_bytes", filter=Q(state__in=HELD_STATES)),
        coming=Sum("upload_bytes", filter=Q(state__in=IN_PROGRESS)),
    )
    kept = (UploadStatus.PENDING, UploadStatus.COMPLETED)
    uploads = _sums(
        Upload.objects.filter(**only, status__in=kept), n=Count("pk"), declared=Sum("size_bytes")
    )
    parts = _sums(UploadPart.objects.filter(**only), sealed=Sum(_SEALED))
    return Storage(
        adapters=Kept(
            count=adapters,
            stored_bytes=versions["stored"],
            counted_bytes=versions["stored"] + versions["coming"],
            max_bytes=None if tenant is None else tenant.tier.max_adapter_bytes,
        ),
        uploads=Kept(
            count=uploads["n"],
            stored_bytes=parts["sealed"],
            counted_bytes=uploads["declared"],
            max_bytes=None if tenant is None else upload_bytes_allowed(tenant),
        ),
    )


def _sums(rows: QuerySet[Any], **sums: Any) -> dict[str, int]:
    return {name: int(value or 0) for name, value in rows.order_by().aggregate(**sums).items()}
