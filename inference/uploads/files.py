"""Files that were uploaded, for whoever they are for: taken once, read, and discarded."""

import uuid
from collections.abc import Iterator

from django.utils import timezone

from inference.models import Upload
from inference.models.upload import UploadPurpose, UploadStatus
from inference.uploads.errors import NoSuchUpload, UploadNotPending
from inference.uploads.ids import parse_file_id
from inference.uploads.parts import read_parts
from inference.uploads.uploading import end_upload, upload_of
from tenants.isolation.scoping import tenant_scope
from tenants.models import DataKey, Tenant


def take_file(tenant: Tenant, file_id: str, purpose: UploadPurpose) -> Upload:
    """Return a completed upload by its file's id, or its own, for one use: it does not expire any
    more, until it is discarded. Within the tenant's scope. Raises `NoSuchUpload`, also for another
    purpose's, and `UploadNotPending` for one that was taken."""
    upload = _file(tenant, file_id, purpose, is_locked=True)
    if upload.taken_at is not None:
        raise UploadNotPending("This file was used before; upload it again.")
    upload.taken_at = timezone.now()
    upload.save(update_fields=["taken_at"])
    return upload


def waiting_file(tenant: Tenant, file_id: str, purpose: UploadPurpose) -> Upload | None:
    """Return a file that `take_file` would take, within the tenant's scope; None without one."""
    try:
        upload = _file(tenant, file_id, purpose)
    except NoSuchUpload:
        return None
    return upload if upload.taken_at is None else None


def _file(
    tenant: Tenant, file_id: str, purpose: UploadPurpose, *, is_locked: bool = False
) -> Upload:
    upload = upload_of(tenant.id, parse_file_id(file_id), is_locked=is_locked)
    is_file = upload.status == UploadStatus.COMPLETED and upload.purpose == purpose
    if not is_file or (upload.taken_at is None and upload.expires_at <= timezone.now()):
        raise NoSuchUpload
    return upload


def read_file(tenant: Tenant, upload_id: uuid.UUID) -> Iterator[bytes]:
    """Yield the bytes of a completed upload; in no scope, as it may take long. Raises
    `NoSuchUpload`, `NoSuchBlob`, `SealBroken` and `StoreAway`."""
    with tenant_scope(tenant.id):
        upload = upload_of(tenant.id, upload_id)
        if upload.status != UploadStatus.COMPLETED:
            raise NoSuchUpload
        found = upload.parts.in_bulk(upload.part_ids)
        key = DataKey.objects.key_of(tenant)
    yield from read_parts([found[each] for each in upload.part_ids], key)


def discard_file(tenant: Tenant, upload_id: uuid.UUID) -> None:
    """Delete a file that was used, or that nobody wants; within the tenant's or an operator's
    scope. One that is gone already is no error."""
    try:
        upload = upload_of(tenant.id, upload_id, is_locked=True)
    except NoSuchUpload:
        return
    if upload.status == UploadStatus.COMPLETED:
        end_upload(upload, UploadStatus.EXPIRED)
