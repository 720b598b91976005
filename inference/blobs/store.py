"""A store of blobs: whole or not there, streamed both ways, the same over a folder and over S3."""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

import obstore
from obstore.store import ObjectStore

from inference.blobs.errors import NoSuchBlob, translate_store_errors

# What is not larger is sent as one piece, and held in memory for it.
SINGLE_BYTES: Final = 8 * 1024 * 1024
# Larger ones go in pieces of this size, so many at once.
_PIECE_BYTES: Final = 8 * 1024 * 1024
_AT_ONCE: Final = 2
_CHUNK_BYTES: Final = 1024 * 1024
_MOST_DELETED_AT_ONCE: Final = 500
_MAX_PATH_CHARACTERS: Final = 300
_WORD: Final = r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9]+)?"
_PATH: Final = re.compile(rf"{_WORD}(/{_WORD})*", re.ASCII)

# Returns an address at which anybody may read a path for so many seconds.
Signer = Callable[[str, int], str]


class BadPath(ValueError):
    """No path of a blob: those are words of small letters, digits, - and _ between slashes."""


@dataclass(frozen=True, kw_only=True)
class StoredBlob:
    """What lies in the store, and since when."""

    path: str
    size_bytes: int
    stored_at: datetime
    # Another one where other bytes were put in its place.
    etag: str


class BlobStore:
    """Blobs by their path. Nothing is seen of a blob before all of it is there; one that is put
    where another was takes its place. Each call may raise `StoreAway`."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        prefix: str = "",
        sign: Signer,
        settle: Callable[[str], None] | None = None,
    ) -> None:
        """`settle` has a path that was put stay there, whatever ends; None where it does anyway."""
        self._settle = settle or (lambda _path: None)
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self._sign = sign

    def put(self, path: str, chunks: Iterable[bytes]) -> int:
        """Store what `chunks` hold, of any size in bounded memory; return how many bytes that were.
        They outlive the machine's power from then on, as the row does that is written next. Raises
        `NoSpace`, and what `chunks` raise: then nothing is stored."""
        full = self._full(path)
        source = _Source(chunks)
        begun = source.take(SINGLE_BYTES + 1)
        if len(begun) <= SINGLE_BYTES:
            with translate_store_errors(path):
                obstore.put(self._store, full, begun, use_multipart=False)
                self._settle(full)
            return source.size_bytes
        try:
            with translate_store_errors(path):
                obstore.put(
                    self._store,
                    full,
                    chain((begun,), source),
                    chunk_size=_PIECE_BYTES,
                    max_concurrency=_AT_ONCE,
                )
                self._settle(full)
        except Exception:
            if source.error is not None:
                raise source.error from None
            raise
        return source.size_bytes

    def get(self, path: str) -> Iterator[bytes]:
        """Return the blob's bytes in chunks of a megabyte or so. Raises `NoSuchBlob` at once."""
        with translate_store_errors(path, may_be_missing=True):
            found = obstore.get(self._store, self._full(path))
        return _chunks_of(path, found)

    async def stream(self, blob: StoredBlob, first: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes from `first` on and before `end` of the blob that was looked at, which
        has them; one that took its place since is none."""
        path = blob.path
        with translate_store_errors(path, may_be_missing=True):
            found = await obstore.get_async(
                self._store,
                self._full(path),
                options={"range": (first, end), "if_match": blob.etag},
            )
            async for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
                yield bytes(chunk)

    def look(self, path: str) -> StoredBlob:
        """Raises `NoSuchBlob`."""
        with translate_store_errors(path, may_be_missing=True):
            return self._stored(obstore.head(self._store, self._full(path)))

    def delete(self, *paths: str) -> None:
        """Delete blobs; those that are not there are no error."""
        for batch in _batches(paths):
            full = [self._full(path) for path in batch]
            try:
                with translate_store_errors(batch[0], may_be_missing=True):
                    obstore.delete(self._store, full)
            except NoSuchBlob:
                # A folder stops at the first that is missing.
                for path in batch:
                    self._delete_one(path)

    def list(self, prefix: str = "") -> Iterator[StoredBlob]:
        """Yield what lies below a prefix, which ends where a word does; in no order."""
        below = (self._prefix + prefix).rstrip("/")
        with translate_store_errors(prefix):
            for batch in obstore.list(self._store, below or None, chunk_size=1000):
                yield from map(self._stored, batch)

    def signed_url(self, path: str, seconds: int) -> str:
        """Return an address at which whoever knows it may read the blob for so many seconds."""
        with translate_store_errors(path):
            return self._sign(self._full(path), seconds)

    def _delete_one(self, path: str) -> None:
        try:
            with translate_store_errors(path, may_be_missing=True):
                obstore.delete(self._store, self._full(path))
        except NoSuchBlob:
            return

    def _full(self, path: str) -> str:
        if len(path) > _MAX_PATH_CHARACTERS or not _PATH.fullmatch(path):
            raise BadPath(f"{path[:_MAX_PATH_CHARACTERS]!r} is no path of a blob.")
        return self._prefix + path

    def _stored(self, meta: Any) -> StoredBlob:
        return StoredBlob(
            path=meta["path"].removeprefix(self._prefix),
            size_bytes=meta["size"],
            stored_at=meta["last_modified"],
            etag=meta["e_tag"] or "",
        )


class _Source:
    """Chunks as the store takes them: counted, and with the error that ended them, which the store
    would wrap in one of its own."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.size_bytes = 0
        self.error: BaseException | None = None

    def take(self, least: int) -> bytes:
        """Read until there are so many bytes or no more come."""
        taken = bytearray()
        for chunk in self:
            taken += chunk
            if len(taken) >= least:
                break
        return bytes(taken)

    def __iter__(self) -> "_Source":
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.size_bytes += len(chunk)
        return chunk


def _chunks_of(path: str, found: Any) -> Iterator[bytes]:
    with translate_store_errors(path, may_be_missing=True):
        for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
            yield bytes(chunk)


def _batches(paths: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(paths), _MOST_DELETED_AT_ONCE):
        yield paths[start : start + _MOST_DELETED_AT_ONCE]
