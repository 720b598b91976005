"""Adapters on record, as an upload and its validation leave them."""

import hashlib
from typing import Any

from django.db import transaction
from django.utils import timezone

from inference.adapters.lifecycle import add_adapter
from inference.adapters.versions import (
    StoredAdapter,
    add_version,
    begin_validation,
    mark_ready,
    opaque_name,
)
from inference.models import Adapter, AdapterVersion, Pool, ServedModel, Upload
from inference.models.upload import UploadPurpose, UploadStatus
from tenants.models import Tenant

BASE = "base-model"
UPLOAD_BYTES = 2_000


def a_base(name: str = BASE) -> ServedModel:
    pool, _ = Pool.objects.get_or_create(name="pool-a")
    found = ServedModel.objects.filter(name=name).first()
    return found or ServedModel.objects.create(name=name, pool=pool, context_tokens=2048)


@transaction.atomic
def an_adapter(tenant: Tenant, slug: str = "support", *, model: str = BASE) -> Adapter:
    a_base(model)
    return add_adapter(tenant, slug=slug, model=model)


def stored(version: AdapterVersion, **changes: Any) -> StoredAdapter:
    """What validation says of a version, with bytes that no other has."""
    digest = hashlib.sha256(str(version.pk).encode()).hexdigest()
    name = opaque_name(version.tenant_id, digest)
    fields: dict[str, Any] = {
        "model": version.adapter.model_id,
        "digest": digest,
        "opaque_name": name,
        "path": f"adapters/{name}",
        "stored_bytes": 1_000,
        "salt": bytes(32),
        "base_digest": "b" * 64,
        "rank": 8,
        "parameters": 4_096,
    }
    return StoredAdapter(**(fields | changes))


@transaction.atomic
def an_upload(adapter: Adapter, upload_bytes: int = UPLOAD_BYTES) -> AdapterVersion:
    """Of a file that is gone meanwhile."""
    upload = Upload.objects.create(
        tenant=adapter.tenant,
        filename="support.zip",
        mime_type="application/zip",
        purpose=UploadPurpose.ADAPTER,
        size_bytes=upload_bytes,
        status=UploadStatus.EXPIRED,
        expires_at=timezone.now(),
    )
    return add_version(adapter, upload)


@transaction.atomic
def a_ready_version(adapter: Adapter, **changes: Any) -> AdapterVersion:
    version = begin_validation(an_upload(adapter))
    return mark_ready(version, stored(version, **changes))
