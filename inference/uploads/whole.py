"""A file that is there as a whole, by the verbs of one that comes in parts."""

from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Final

from inference.errors import InferenceError
from inference.models import Upload
from inference.uploads.bounds import MAX_PART_BYTES
from inference.uploads.uploading import add_part, cancel_upload, complete_upload
from tenants.isolation.scoping import tenant_scope
from tenants.models import Tenant

_CHUNK_BYTES: Final = 1024 * 1024


def store_whole(tenant: Tenant, upload: Upload, file: IO[bytes]) -> Upload:
    """Store a file as the upload that was begun for it, and complete that; one that fails is
    cancelled. In no scope, as it may take long. Raises what `add_part` and `complete_upload` do."""
    try:
        part_ids = [
            add_part(tenant, upload.id, _some(file)).id
            for _ in range(0, upload.size_bytes, MAX_PART_BYTES)
        ]
        return complete_upload(tenant, upload.id, part_ids)
    except BaseException:
        with suppress(InferenceError), tenant_scope(tenant.id):
            cancel_upload(tenant, upload.id)
        raise


def _some(file: IO[bytes]) -> Iterator[bytes]:
    """Yield as many of the file's bytes as a part may have."""
    left = MAX_PART_BYTES
    while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
        left -= len(chunk)
        yield chunk
