"""What a store of blobs can fail with."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from obstore.exceptions import BaseError

from inference.errors import Unavailable

log = structlog.get_logger(__name__)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Linux: ENOSPC, EDQUOT, EFBIG. S3's own stores: MinIO and Ceph, and HTTP's 507.
_NO_SPACE: Final = re.compile(r"os error (28|122|27)\b|StorageFull|QuotaExceeded|507 Insufficient")


class StoreAway(Unavailable):
    """The store does not answer, or refuses what it is asked for."""

    code = "blob_store_away"


class NoSpace(Unavailable):
    """The store takes nothing more."""

    code = "blob_store_full"


class DiskFull(Unavailable):
    """A disk of this machine, where bytes are on their way, takes nothing more."""

    code = "disk_full"


class NoSuchBlob(LookupError):
    """There is nothing at this path."""


@contextmanager
def translate_store_errors(path: str, *, may_be_missing: bool = False) -> Iterator[None]:
    """Turn whatever the store raises into one of these. What it said goes to the log alone: it may
    name hosts and folders."""
    try:
        yield
    except (BaseError, OSError) as error:
        if may_be_missing and isinstance(error, FileNotFoundError):
            raise NoSuchBlob(f"There is no blob at {path}.") from None
        text = str(error)
        is_full = _NO_SPACE.search(text) is not None
        log.error("blob_store_failed", path=path, is_full=is_full, reason=text[:2000])
        if is_full:
            raise NoSpace(
                "The store of blobs is full; tell the operator, and try again.",
                retry_after_seconds=60,
            ) from error
        raise StoreAway(
            "The store of blobs does not answer; try again.", retry_after_seconds=5
        ) from error


@contextmanager
def room_on_disk() -> Iterator[None]:
    """Turn an OSError that says that a disk is full into `DiskFull`; others stay what they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        log.error("disk_full", reason=str(error)[:2000])
        raise DiskFull(
            "The disk of the machine that takes uploads is full; tell the operator, and try again.",
            retry_after_seconds=60,
        ) from error
