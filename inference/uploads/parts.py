"""What the parts of an upload hold."""

from collections.abc import Iterable, Iterator

from gpu_workers.protocol.sealed import open_sealed
from inference.blobs.opening import blob_store
from inference.models import UploadPart


def read_parts(parts: Iterable[UploadPart], key: bytes) -> Iterator[bytes]:
    """Yield what the parts hold, one after the other. Raises `NoSuchBlob`, `SealBroken` and
    `StoreAway`."""
    store = blob_store()
    for part in parts:
        yield from open_sealed(store.get(part.path), key)
