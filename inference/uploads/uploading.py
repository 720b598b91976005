"""An upload from its beginning to its end: create, add parts, complete or cancel.

What takes long, storing and reading bytes, happens outside of any transaction: a part is stored
first and put on record then, if its upload still takes it. A part that is not put on record is
deleted; where the process ended before that, `blobs.sweep` does it.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from gpu_workers.protocol.sealed import seal
from inference.blobs.opening import blob_store
from inference.blobs.sweep import delete_blobs
from inference.models import Upload, UploadPart
from inference.models.upload import LIFETIME, UploadPurpose, UploadStatus
from inference.uploads.bounds import (
    MAX_PART_BYTES,
    MAX_PARTS,
    MAX_PENDING,
    MAX_REMEMBERED,
    STORED_FOR_EACH_BYTE,
    upload_bytes_allowed,
)
from inference.uploads.digests import md5_of
from inference.uploads.errors import (
    NoSuchUpload,
    StorageFull,
    UploadNotPending,
    UploadTooLarge,
    WrongDigest,
    WrongParts,
)
from tenants.isolation.scoping import give_connection_back, tenant_scope
from tenants.models import DataKey, Tenant

_RETRY_SECONDS: Final = 3600


@dataclass(frozen=True, kw_only=True)
class NewUpload:
    """What is to come. `filename` is only ever shown."""

    filename: str
    mime_type: str
    purpose: UploadPurpose
    size_bytes: int


def create_upload(tenant: Tenant, new: NewUpload) -> Upload:
    """Begin an upload, within the tenant's scope. Raises `UploadTooLarge` and `StorageFull`."""
    # Of two that begin at once the second sees the first.
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    allowed = upload_bytes_allowed(tenant)
    if new.size_bytes > allowed:
        raise UploadTooLarge(
            f"An upload may have at most {allowed} bytes by your tier; this one has "
            f"{new.size_bytes}.",
            param="bytes",
        )
    rows = Upload.objects.filter(tenant=tenant)
    kept = rows.filter(status__in=(UploadStatus.PENDING, UploadStatus.COMPLETED))
    held = kept.aggregate(held=Sum("size_bytes"))["held"] or 0
    if held + new.size_bytes > allowed:
        raise _full(
            f"Your uploads hold {held} bytes; with these {new.size_bytes} they would hold more "
            f"than the {allowed} that your tier allows. Cancel one, or wait until one expires."
        )
    if rows.filter(status=UploadStatus.PENDING).count() >= MAX_PENDING:
        raise _full(
            f"{MAX_PENDING} uploads wait for parts: complete or cancel one before you begin "
            "another."
        )
    if rows.count() >= MAX_REMEMBERED:
        raise _full(f"There were {MAX_REMEMBERED} uploads within a day; wait until tomorrow.")
    return Upload.objects.create(
        tenant=tenant,
        filename=new.filename,
        mime_type=new.mime_type,
        purpose=new.purpose,
        size_bytes=new.size_bytes,
        expires_at=timezone.now() + LIFETIME,
    )


def upload_of(tenant_id: uuid.UUID, upload_id: uuid.UUID, *, is_locked: bool = False) -> Upload:
    """Return an upload, within the tenant's scope. Raises `NoSuchUpload`."""
    rows = Upload.objects.select_for_update(no_key=True) if is_locked else Upload.objects.all()
    found = rows.filter(id=upload_id, tenant_id=tenant_id).first()
    if found is None:
        raise NoSuchUpload
    return found


def add_part(tenant: Tenant, upload_id: uuid.UUID, chunks: Iterable[bytes]) -> UploadPart:
    """Store a part and put it on record. In no scope, as it may take long. Raises `NoSuchUpload`,
    `UploadNotPending`, `UploadTooLarge`, `StorageFull`, and the store's errors."""
    with tenant_scope(tenant.id):
        room = _room_of(upload_of(tenant.id, upload_id))
        key = DataKey.objects.key_of(tenant)
    part = UploadPart(tenant_id=tenant.id, upload_id=upload_id)
    give_connection_back()
    measured = _Measured(chunks, room)
    store = blob_store()
    store.put(part.path, seal(measured, key))
    part.size_bytes, part.md5 = measured.size_bytes, measured.md5
    try:
        if not part.size_bytes:
            raise WrongParts("A part has at least one byte.", param="data")
        with tenant_scope(tenant.id):
            _check_room(_room_of(upload_of(tenant.id, upload_id, is_locked=True)), part.size_bytes)
            part.save(force_insert=True)
    except BaseException:
        delete_blobs([part.path])
        raise
    return part


def complete_upload(
    tenant: Tenant, upload_id: uuid.UUID, part_ids: Sequence[uuid.UUID], md5: str | None = None
) -> Upload:
    """Make a file of the parts in this order; parts that are not named are deleted. Once more with
    the same parts it does nothing. In no scope, as it may take long. Raises `NoSuchUpload`,
    `UploadNotPending`, `WrongParts`, `WrongDigest`, and what `md5_of` does."""
    with tenant_scope(tenant.id):
        upload = upload_of(tenant.id, upload_id)
        if _is_the_same_file(upload, part_ids):
            return upload
        parts = _checked_parts(upload, part_ids)
    if md5 is not None:
        _check_digest(md5_of(upload, parts), md5)
    with tenant_scope(tenant.id):
        upload = upload_of(tenant.id, upload_id, is_locked=True)
        if _is_the_same_file(upload, part_ids):
            return upload
        _checked_parts(upload, part_ids)
        upload.part_ids = list(part_ids)
        upload.status = UploadStatus.COMPLETED
        upload.expires_at = timezone.now() + LIFETIME
        upload.save(update_fields=["part_ids", "status", "expires_at"])
        _drop_parts(upload, kept=part_ids)
    return upload


def cancel_upload(tenant: Tenant, upload_id: uuid.UUID) -> Upload:
    """End an upload that takes parts, within the tenant's scope; what has come is deleted. Once
    more it does nothing. Raises `NoSuchUpload` and `UploadNotPending`."""
    upload = upload_of(tenant.id, upload_id, is_locked=True)
    if upload.status != UploadStatus.CANCELLED:
        _check_pending(upload)
        end_upload(upload, UploadStatus.CANCELLED)
    return upload


def end_upload(upload: Upload, status: UploadStatus, now: datetime | None = None) -> None:
    """Put the end of an upload, or of its file, on record and delete its parts, once that is
    committed. Within a scope, the row locked."""
    upload.status = status
    upload.part_ids, upload.taken_at = [], None
    upload.expires_at = now or timezone.now()
    upload.save(update_fields=["status", "part_ids", "taken_at", "expires_at"])
    _drop_parts(upload)


class _Measured:
    """Chunks of a part, no more of them than there is room for."""

    def __init__(self, chunks: Iterable[bytes], room: int) -> None:
        self._chunks = chunks
        self._room = room
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size_bytes = 0

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size_bytes += len(chunk)
            _check_room(self._room, self.size_bytes)
            self._md5.update(chunk)
            yield chunk


def _room_of(upload: Upload) -> int:
    """Return how many bytes the next part may have."""
    _check_pending(upload)
    sizes = list(upload.parts.values_list("size_bytes", flat=True))
    if len(sizes) >= MAX_PARTS:
        raise _full(f"An upload may have {MAX_PARTS} parts, and this one has them: send larger.")
    stored = upload.size_bytes * STORED_FOR_EACH_BYTE - sum(sizes)
    if stored <= 0:
        raise UploadTooLarge(
            f"The upload was declared to have {upload.size_bytes} bytes, and its parts have "
            f"{sum(sizes)}.",
            param="data",
        )
    return min(upload.size_bytes, stored, MAX_PART_BYTES)


def _check_room(room: int, size: int) -> None:
    if size > room:
        raise UploadTooLarge(
            f"This part may have at most {room} bytes: parts have {MAX_PART_BYTES} and no more "
            "than the upload was declared to have.",
            param="data",
        )


def _check_pending(upload: Upload) -> None:
    if upload.has_ended():
        is_late = upload.status == UploadStatus.PENDING
        state = UploadStatus.EXPIRED if is_late else upload.status
        raise UploadNotPending(f"This upload is {state}; only a pending one can be changed.")


def _is_the_same_file(upload: Upload, part_ids: Sequence[uuid.UUID]) -> bool:
    return upload.status == UploadStatus.COMPLETED and upload.part_ids == list(part_ids)


def _checked_parts(upload: Upload, part_ids: Sequence[uuid.UUID]) -> list[UploadPart]:
    """Return the parts in the order that is asked for, if they make the file."""
    _check_pending(upload)
    if len(set(part_ids)) != len(part_ids):
        raise WrongParts("A part is named more than once.", param="part_ids")
    found = upload.parts.in_bulk(list(part_ids))
    missing = next((each for each in part_ids if each not in found), None)
    if missing is not None:
        raise WrongParts(f"This upload has no part part_{missing.hex}.", param="part_ids")
    size = sum(part.size_bytes for part in found.values())
    if size != upload.size_bytes:
        raise WrongParts(
            f"The parts have {size} bytes, and the upload was declared to have "
            f"{upload.size_bytes}.",
            param="part_ids",
        )
    return [found[each] for each in part_ids]


def _check_digest(found: str, expected: str) -> None:
    if found != expected.lower():
        raise WrongDigest(
            f"The parts in this order have the MD5 {found}, not {expected.lower()}: "
            "send what differs again, or name the parts in another order.",
            param="md5",
        )


def _drop_parts(upload: Upload, kept: Sequence[uuid.UUID] = ()) -> None:
    dropped = upload.parts.exclude(id__in=kept)
    paths = [part.path for part in dropped]
    dropped.delete()
    transaction.on_commit(lambda: delete_blobs(paths))


def _full(message: str) -> StorageFull:
    # Waiting does not help by itself, and a client that repeats the call by itself only asks more.
    return StorageFull(message, retry_after_seconds=_RETRY_SECONDS, should_retry=False)
