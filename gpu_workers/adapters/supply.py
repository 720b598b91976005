"""Brings adapters to where this worker's engine can read them: from its disk, or from the store."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from gpu_workers.adapters.cache import AdapterCache, is_opaque_name
from gpu_workers.adapters.fetch import Fetches, FetchFailed, StoreAway
from gpu_workers.adapters.sources import AdapterSources
from gpu_workers.adapters.unavailable import AdapterUnavailable
from gpu_workers.adapters.unseal import AdapterCorrupt
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.protocol.adapters import AdapterSource
from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.codec import WireFormatError
from gpu_workers.protocol.redis_errors import is_transient

FETCHES_AT_ONCE: Final = 4
OPENED_AT_ONCE: Final = 2
# The second with the source read anew: its URL may have run out, or the store have been away.
TRIES: Final = 2
SOURCE_SECONDS: Final = 10.0
# Gateways may hear of a new version a moment before its source is there.
LATE_SECONDS: Final = 1.0
_ASK_AGAIN_SECONDS: Final = 0.1

_log = structlog.get_logger("gpu_workers.adapters.supply")


@dataclass(frozen=True, slots=True)
class Opened:
    """An adapter's files, for this worker's engine alone; `is_fetched`: they were not on disk;
    `needs_probe`: nobody knows what it does to answers."""

    folder: Path
    is_fetched: bool
    needs_probe: bool


class AdapterSupply:
    """Opens adapters, a few at once. `on_disk` is called with what came to the disk or went."""

    def __init__(
        self,
        *,
        cache: AdapterCache,
        sources: AdapterSources,
        fetches: Fetches,
        metrics: WorkerMetrics,
        on_disk: Callable[[str], None],
    ) -> None:
        self._cache = cache
        self._sources = sources
        self._fetches = fetches
        self._metrics = metrics
        self._on_disk = on_disk
        self._fetching = asyncio.Semaphore(FETCHES_AT_ONCE)
        # Apart from those: a store that stalls holds up nothing that is on disk.
        self._opening = asyncio.Semaphore(OPENED_AT_ONCE)
        self._names: set[str] = set()

    def has(self, name: str) -> bool:
        """Tell whether an adapter is on this machine's disk, as far as this worker has seen."""
        return name in self._names

    async def look(self) -> None:
        """See which of the pool's adapters are on disk: other workers fetch and evict there too.
        Raises a connection error if Redis is away."""
        there = await asyncio.to_thread(self._cache.names)
        new = await self._sources.known(sorted(there - self._names))
        gone = self._names - there
        self._names = (self._names & there) | new
        for name in gone | new:
            self._on_disk(name)
        self._metrics.adapter_cache_bytes.set(await asyncio.to_thread(self._cache.size_bytes))

    async def open(self, name: str) -> Opened:
        """Return the adapter's checked files, in a folder that stays until it is dropped. Raises
        `AdapterUnavailable`."""
        if not is_opaque_name(name):
            raise AdapterUnavailable("its name is not that of an adapter")
        try:
            return await self._open(name)
        except OSError as error:
            # Full, read-only or broken: what was half written is gone.
            problem = f"the disk refuses: {error.strerror or error}"
            raise AdapterUnavailable(problem, is_any=True) from error

    async def pin(self, names: Collection[str]) -> None:
        """Have these, and no others, leave the disk last."""
        await asyncio.to_thread(self._cache.pin, names)

    async def drop(self, folder: Path) -> None:
        """Remove an opened adapter's files."""
        await asyncio.to_thread(self._cache.drop, folder)

    async def close(self) -> None:
        await self._fetches.close()
        await asyncio.to_thread(self._cache.close)

    async def _open(self, name: str) -> Opened:
        problem, is_any = "", False
        for _ in range(TRIES):
            source = await self._source_of(name)
            if (folder := await self._open_cached(source)) is not None:
                await self._make_room(0)
                return Opened(folder, is_fetched=False, needs_probe=source.needs_probe)
            try:
                async with self._fetching:
                    folder = await self._fetch(source)
                return Opened(folder, is_fetched=True, needs_probe=source.needs_probe)
            except (FetchFailed, AdapterCorrupt) as error:
                problem, is_any = str(error), isinstance(error, StoreAway)
                _log.warning("adapter_not_fetched", adapter=name, reason=problem)
        raise AdapterUnavailable(problem, is_any=is_any)

    async def _open_cached(self, source: AdapterSource) -> Path | None:
        try:
            async with self._opening:
                return await asyncio.to_thread(self._cache.open_cached, source)
        except AdapterCorrupt as error:
            _log.error("cached_adapter_corrupt", adapter=source.adapter, reason=str(error))
            self._note(source.adapter, is_there=False)
            return None

    async def _fetch(self, source: AdapterSource) -> Path:
        if source.expires_at_ms <= now_ms():
            raise FetchFailed("its URL has expired")
        if not 0 < source.size_bytes <= self._cache.max_bytes:
            raise FetchFailed(f"it has {source.size_bytes} bytes, of {self._cache.max_bytes}")
        await self._make_room(2 * source.size_bytes)  # as it is sealed, and opened
        path, file = await asyncio.to_thread(self._cache.begin, source)
        try:
            with file:
                await self._fetches.fetch(source, file)
            folder = await asyncio.to_thread(self._cache.open_fetched, path, source)
        except BaseException:
            # Not on a thread: whoever cancels this has no time for one.
            self._cache.drop(path)
            raise
        is_kept = await asyncio.to_thread(self._cache.has, source.adapter)
        self._note(source.adapter, is_there=is_kept)
        return folder

    async def _source_of(self, name: str) -> AdapterSource:
        try:
            async with asyncio.timeout(SOURCE_SECONDS):
                source = await self._read_source(name)
        except TimeoutError as error:
            raise AdapterUnavailable("Redis is away") from error
        except WireFormatError as error:
            raise AdapterUnavailable("its source cannot be read") from error
        if source is None or source.adapter != name:
            raise AdapterUnavailable("the pool has no source of it")
        return source

    async def _read_source(self, name: str) -> AdapterSource | None:
        """Read a source, as soon as Redis answers and, for a moment, it is there."""
        loop = asyncio.get_running_loop()
        late_at = loop.time() + LATE_SECONDS
        while True:
            try:
                source = await self._sources.read(name)
                if source is not None or loop.time() > late_at:
                    return source
            except Exception as error:
                if not is_transient(error):
                    raise
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def _make_room(self, wanted_bytes: int) -> None:
        removed = await asyncio.to_thread(self._cache.make_room, wanted_bytes)
        for name in removed:
            self._metrics.adapter_evicted("disk")
            self._note(name, is_there=False)

    def _note(self, name: str, *, is_there: bool) -> None:
        if is_there is not (name in self._names):
            self._names ^= {name}
            self._on_disk(name)
