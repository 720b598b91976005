"""Blobs that no row refers to, and rows whose blob is gone. A blob is stored before its row is, and
deleted after it: a process that ends between the two leaves one that nobody has, for an hour."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

import structlog
from django.utils import timezone

from inference.blobs.errors import NoSpace, StoreAway
from inference.blobs.opening import blob_folder, blob_store
from inference.blobs.store import BlobStore

log = structlog.get_logger(__name__)

# Far longer than it takes from a blob to its row.
GRACE: Final = timedelta(hours=1)
_MOST_AT_ONCE: Final = 1000
# As obstore names a file of a folder while it writes it.
_HALF_WRITTEN: Final = re.compile(r".+#\d+")

# Yields all blobs that an owner's rows refer to, by path, with their bytes, inside an operator's
# scope.
References = Callable[[], Iterable[tuple[str, int]]]
_owners: dict[str, References] = {}


def register_owner(kind: str, references: References) -> None:
    """Say which blobs below `<kind>/` are somebody's; all others there are deleted."""
    _owners[kind] = references


def delete_blobs(paths: Sequence[str]) -> None:
    """Delete blobs that are on no record any more; what the store cannot now is swept later."""
    if not paths:
        return
    try:
        blob_store().delete(*paths)
    except StoreAway as error:
        log.warning("blobs_not_deleted", count=len(paths), reason=error.message)


def sweep_blobs(store: BlobStore | None = None, now: datetime | None = None) -> int:
    """Delete what has been nobody's for longer than `GRACE`; return how many blobs that were.
    Within an operator's scope. Raises `StoreAway`."""
    store, before = store or blob_store(), (now or timezone.now()) - GRACE
    deleted = 0
    for kind, references in _owners.items():
        old = (blob.path for blob in store.list(kind) if blob.stored_at < before)
        while found := list(islice(old, _MOST_AT_ONCE)):
            # Read after the list, so that what came meanwhile is known.
            orphans = set(found).difference(path for path, _ in references())
            store.delete(*sorted(orphans))
            deleted += len(orphans)
    if deleted:
        log.warning("orphan_blobs_deleted", count=deleted)
    folder = blob_folder()
    if folder is not None:
        _delete_half_written(folder, before)
    return deleted


def blob_problems(store: BlobStore | None = None, now: datetime | None = None) -> Iterator[str]:
    """Find, for fsck, rows without their blob, blobs of another size than their row says, and those
    that are nobody's and were not swept."""
    store, before = store or blob_store(), (now or timezone.now()) - 2 * GRACE
    for kind, references in sorted(_owners.items()):
        expected = dict(references())
        try:
            stored = {blob.path: blob for blob in store.list(kind)}
        except (StoreAway, NoSpace) as error:
            yield f"Blobs of {kind} cannot be looked at: {error.message}"
            continue
        referred = dict(references())
        for path in sorted((expected.keys() & referred.keys()) - stored.keys()):
            yield f"The blob {path} is on record, and not in the store."
        for path in sorted(referred.keys() & stored.keys()):
            if stored[path].size_bytes != referred[path]:
                yield (
                    f"The blob {path} has {stored[path].size_bytes} bytes, and {referred[path]} on "
                    "record."
                )
        for path in sorted(stored.keys() - referred.keys()):
            if stored[path].stored_at < before:
                yield (
                    f"The blob {path} is in the store since "
                    f"{stored[path].stored_at:%Y-%m-%d %H:%M} and on no record: see that Celery's "
                    "beat runs."
                )


def _delete_half_written(folder: Path, before: datetime) -> None:
    """Delete what a process that was killed left of a blob that it wrote to a folder; the store
    does not list it."""
    for file in folder.rglob("*#*"):
        try:
            is_old = file.stat().st_mtime < before.timestamp()
            if is_old and _HALF_WRITTEN.fullmatch(file.name) and file.is_file():
                file.unlink()
        except FileNotFoundError:
            continue
