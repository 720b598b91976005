"""Adapters on this machine's disk, as the store has them: sealed, under their opaque names.

    sealed/<opaque name>      what was fetched; whoever shares the folder may read and evict it
    workers/<id>/lock         held while that worker lives; says how many bytes it has there
    workers/<id>/<name>/      an opened adapter, of that worker alone, which its engine reads; one
                              that is open twice at a time is in <n>-<name>/, too
    workers/<id>/<n>-fetched  a fetch under way

What is shared is never believed: it is opened, under the key that the control plane gives, and
compared with its digest at each load, while it is copied to where nobody else writes. So nothing
need be locked between workers, and what happens to a shared file later harms no engine. All methods
block; call them on a thread.
"""

import errno
import os
import re
import secrets
import shutil
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from gpu_workers.adapters.locks import held, try_lock
from gpu_workers.adapters.unseal import AdapterCorrupt, unseal
from gpu_workers.protocol.adapters import AdapterSource

_OPAQUE_NAME: Final = re.compile(r"[0-9a-f]{64}")
_MOST_DIGITS: Final = 20


class CacheUnusable(RuntimeError):
    """The cache's folder cannot be used; the message says why and what to do."""


def is_opaque_name(name: str) -> bool:
    """Tell whether this is a SHA-256 in hex, which alone may become part of a path."""
    return _OPAQUE_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class _Sealed:
    path: Path
    size_bytes: int
    used_ns: int


class AdapterCache:
    """The sealed adapters in a folder, of at most `max_bytes` together with all that workers have
    opened of them; the least recently used go first. Make one with `open`."""

    def __init__(self, folder: Path, own: Path, lock: int, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.folder = folder
        self._sealed = folder / "sealed"
        self._workers = folder / "workers"
        self._own = own
        self._lock = lock
        self._is_closed = False
        self._numbers = count()
        self._own_bytes: dict[Path, int] = {}
        self._pinned: frozenset[str] = frozenset()
        self._counting = threading.Lock()
        self._evicting = threading.Lock()

    @classmethod
    def open(cls, folder: Path, max_bytes: int) -> "AdapterCache":
        """Open the cache in a folder, which is made if need be, and remove what workers left there
        that were killed. Raises `CacheUnusable`."""
        try:
            folder = folder.resolve()
            own = folder / "workers" / f"{os.getpid()}-{secrets.token_hex(4)}"
            return cls(folder, own, _enter(folder, own), max_bytes)
        except OSError as error:
            raise CacheUnusable(
                f"The adapters' cache in {folder} cannot be used: {error.strerror or error}. Name a"
                " folder that this user may write, on a disk of this machine, in"
                " PENSTOCK_ADAPTER_CACHE."
            ) from error

    def names(self) -> set[str]:
        """Return the opaque names of what is there."""
        return {each.path.name for each in self._entries()}

    def has(self, name: str) -> bool:
        """Tell whether something is there under a name."""
        return (self._sealed / name).is_file()

    def size_bytes(self) -> int:
        """Return how many bytes all that is there has, opened or not."""
        return sum(each.size_bytes for each in self._entries()) + self._opened_bytes()

    def open_cached(self, source: AdapterSource) -> Path | None:
        """Return a folder of this worker alone with the adapter's checked files; None if it is not
        in the cache. What is there and is not the source's is removed: raises `AdapterCorrupt`.
        Raises `OSError` where the disk refuses."""
        path = self._sealed / source.adapter
        try:
            opened = self._unseal(path, source)
        except FileNotFoundError:
            return None
        except AdapterCorrupt:
            _remove(path)
            raise
        _touch(path)
        return opened

    def begin(self, source: AdapterSource) -> tuple[Path, BinaryIO]:
        """Return a new file to fetch into, and its path. Whoever asked closes it, then calls
        `open_fetched` or `drop`. Raises `OSError` where the disk refuses."""
        path = self._new_path("fetched")
        file = path.open("xb")
        self._count(path, source.size_bytes)
        return path, file

    def open_fetched(self, fetched: Path, source: AdapterSource) -> Path:
        """Return what `open_cached` returns, of a fetched file, which then is in the cache if that
        has room. Raises `AdapterCorrupt` and `OSError` as that does; the file is gone then."""
        try:
            opened = self._unseal(fetched, source)
            if self.size_bytes() <= self.max_bytes:
                with suppress(OSError):  # what cannot be kept can be used
                    fetched.replace(self._sealed / source.adapter)
        finally:
            self.drop(fetched)
        return opened

    def pin(self, names: Collection[str]) -> None:
        """Have these, and no others, go last. They count as used now, for other workers that share
        the folder and do not know of them."""
        self._pinned = frozenset(names)
        for name in self._pinned:
            if is_opaque_name(name):
                _touch(self._sealed / name)

    def make_room(self, wanted_bytes: int) -> list[str]:
        """Remove the least recently used, pinned ones last, until so many bytes more are within the
        bound, or nothing is left to remove. Return the names of what went."""
        removed = []
        with self._evicting:
            pinned = self._pinned
            entries = sorted(
                self._entries(), key=lambda each: (each.path.name in pinned, each.used_ns)
            )
            total = sum(each.size_bytes for each in entries) + self._opened_bytes() + wanted_bytes
            for each in entries:
                if total <= self.max_bytes:
                    break
                _remove(each.path)
                total -= each.size_bytes
                removed.append(each.path.name)
        return removed

    def drop(self, path: Path) -> None:
        """Remove an opened adapter, or a file to fetch into."""
        self._count(path, 0)  # before another may have the path
        _remove(path)

    def close(self) -> None:
        """Remove what is of this worker alone; what is sealed stays."""
        shutil.rmtree(self._own, ignore_errors=True)
        with self._counting:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._lock)

    def _new_path(self, name: str) -> Path:
        """Return a path of this worker alone, in its folder. Raises `OSError`."""
        self._make_own()
        return self._own / f"{next(self._numbers)}-{name}"

    def _new_folder(self, name: str) -> Path:
        """Make a folder for an opened adapter, by its name alone unless it is open already: vLLM
        finds what it has computed for an adapter by the path that it was loaded from, too. Raises
        `OSError`."""
        self._make_own()
        folder = self._own / name
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            folder = self._new_path(name)
            folder.mkdir(mode=0o700)
        return folder

    def _make_own(self) -> None:
        """Make this worker's folder again if somebody has removed it. Raises `OSError`."""
        with self._counting:
            if not self._own.is_dir() and not self._is_closed:
                lock = _enter(self.folder, self._own)
                self._own_bytes.clear()
                os.dup2(lock, self._lock, inheritable=False)
                os.close(lock)

    def _unseal(self, sealed: Path, source: AdapterSource) -> Path:
        folder = self._new_folder(source.adapter)
        self._count(folder, source.size_bytes)
        try:
            unseal(sealed, source, folder)
        except BaseException:
            self.drop(folder)
            raise
        return folder

    def _entries(self) -> Iterator[_Sealed]:
        for path in _listed(self._sealed):
            with suppress(OSError):  # another worker has evicted it
                found = path.lstat()
                if is_opaque_name(path.name):
                    yield _Sealed(path, found.st_size, found.st_mtime_ns)

    def _count(self, path: Path, size_bytes: int) -> None:
        """Note how many bytes something of this worker has, and tell the others their sum."""
        with self._counting:
            if size_bytes:
                self._own_bytes[path] = size_bytes
            else:
                self._own_bytes.pop(path, None)
            if self._is_closed:
                return
            with suppress(OSError):  # a full disk: they see the sum before
                os.pwrite(self._lock, b"%0*d" % (_MOST_DIGITS, sum(self._own_bytes.values())), 0)

    def _opened_bytes(self) -> int:
        """Return how many bytes all workers say that they have opened."""
        return sum(_said_in(each / "lock") for each in _listed(self._workers))


def _said_in(lock: Path) -> int:
    try:
        with lock.open("rb") as file:
            said = file.read(_MOST_DIGITS)
    except OSError:
        return 0
    return int(said) if said.isdigit() else 0


def _touch(path: Path) -> None:
    """Note that a file is used now; one that is not there is no error."""
    with suppress(OSError):
        os.utime(path, follow_symlinks=False)


def _remove(path: Path) -> None:
    """Remove a file, a link or, whoever put it there, a folder. What is gone, or not ours, is no
    error: nothing of it is ever used unchecked."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _enter(folder: Path, own: Path) -> int:
    """Make the cache's folders and a worker's own; return the lock of that. Raises `OSError`."""
    for each in (folder, folder / "sealed", folder / "workers"):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    with held(folder / "lock"):
        _sweep(folder / "workers")
        own.mkdir(mode=0o700, exist_ok=True)
        lock = try_lock(own / "lock")
    if lock is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    return lock


def _sweep(workers: Path) -> None:
    """Remove the folders of workers that live no longer: nobody holds their locks."""
    for each in _listed(workers):
        lock = try_lock(each / "lock")
        if lock is not None:
            shutil.rmtree(each, ignore_errors=True)
            os.close(lock)
