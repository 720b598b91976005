"""All that a worker does about adapters, from its engine's start to its end."""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import structlog
from redis.asyncio import Redis

from gpu_workers.adapters.cache import AdapterCache
from gpu_workers.adapters.fetch import Fetches
from gpu_workers.adapters.pins import LOOK_AT_PINS_SECONDS, PinnedAdapters
from gpu_workers.adapters.reports import AdapterReports, Post
from gpu_workers.adapters.residency import Residency
from gpu_workers.adapters.sources import AdapterSources
from gpu_workers.adapters.supply import AdapterSupply
from gpu_workers.adapters.trials import AdapterTrials
from gpu_workers.engine import Engine, EngineDescription, EngineDied
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.protocol.adapters import AdapterEffect
from gpu_workers.protocol.redis_errors import is_transient

CACHE_FOLDER: Final = Path("var") / "adapter-cache"
# Seen twice. The control plane takes away what is needed no more every half minute: all of it is
# gone from here within a minute.
LOOK_EVERY_SECONDS: Final = 10.0

_log = structlog.get_logger("gpu_workers.adapters.worker_adapters")


class WorkerAdapters:
    """The adapters of one worker; without any where its engine has none, and before `start`."""

    def __init__(
        self,
        *,
        engine: Engine,
        redis: "Redis",
        post: Post,
        pool: str,
        metrics: WorkerMetrics,
        cache: Path | None,
        cache_bytes: int,
        look_every_seconds: float = LOOK_AT_PINS_SECONDS,
        forget_every_seconds: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self._engine = engine
        self._post = post
        self._sources = AdapterSources(redis, pool=pool)
        self._metrics = metrics
        self._folder = cache or CACHE_FOLDER
        self._cache_bytes = cache_bytes
        self._look_every_seconds = look_every_seconds
        self._forget_every_seconds = forget_every_seconds
        self._supply: AdapterSupply | None = None
        self._residency: Residency | None = None
        self._reports: AdapterReports | None = None

    async def start(self, known: EngineDescription) -> "list[Coroutine[Any, Any, None]]":
        """Open the cache, if the engine has adapters; return what is to run from then on. Raises
        `CacheUnusable`."""
        if known.adapter_base is None or not known.adapters_in_memory:
            return []
        cache = await asyncio.to_thread(AdapterCache.open, self._folder, self._cache_bytes)
        self._supply = AdapterSupply(
            cache=cache,
            sources=self._sources,
            fetches=Fetches(),
            metrics=self._metrics,
            on_disk=self._changed,
        )
        trials = AdapterTrials(self._engine, on_found=self._found)
        self._residency = Residency(
            engine=self._engine,
            supply=self._supply,
            trials=trials,
            metrics=self._metrics,
            capacity=known.adapters_in_memory,
            slots=known.adapter_slots,
            on_change=self._changed,
            on_prefetch_settled=self._settled,
            on_loaded=self._loaded,
        )
        self._reports = AdapterReports(
            self._post,
            sources=self._sources,
            level_of=self._residency.level_of,
            effects=trials.found,
            base=known.adapter_base,
        )
        in_memory, slots = known.adapters_in_memory, known.adapter_slots
        pinned = PinnedAdapters(
            sources=self._sources,
            supply=self._supply,
            residency=self._residency,
            most_in_memory=max(0, min(in_memory // 2, in_memory - slots)),
            most_bytes=self._cache_bytes // 2,
            metrics=self._metrics,
            look_every_seconds=self._look_every_seconds,
        )
        return [
            pinned.run(),
            self._reports.run(),
            self._residency.prefetch_forever(),
            self._look_forever(self._supply, self._residency),
        ]

    def use(
        self, name: str, until: "asyncio.Future[None]"
    ) -> "AbstractAsyncContextManager[None, bool | None]":
        """Keep an adapter loaded, as `Residency.use`; an engine without refuses by itself."""
        return nullcontext() if self._residency is None else self._residency.use(name, until)

    def prefetch(self, name: str) -> None:
        """Load an adapter soon: a request that needs it waits."""
        if self._residency is not None:
            self._residency.prefetch(name)

    def counts(self) -> tuple[int, int] | None:
        """Return how many are in slots and in memory; None of an engine without adapters."""
        return None if self._residency is None else self._residency.counts()

    def resync(self) -> None:
        """Tell Redis everything again, which has lost this worker."""
        if self._reports is not None:
            self._reports.resync()

    async def close(self) -> None:
        if self._residency is not None:
            await self._residency.close()
        if self._supply is not None:
            await self._supply.close()

    def _loaded(self, name: str, seconds: float) -> None:
        if self._reports is not None:
            self._reports.loaded(name, seconds)

    def _settled(self, name: str) -> None:
        if self._reports is not None:
            self._reports.missed(name)

    def _found(self, name: str, effect: AdapterEffect) -> None:
        if self._reports is not None:
            self._reports.found(name, effect)

    def _changed(self, name: str) -> None:
        if self._reports is not None:
            self._reports.changed(name)

    async def _look_forever(self, supply: AdapterSupply, residency: Residency) -> None:
        """See what others have done to the disk, and unload what the pool has no more: its tenant
        may be closed. A Redis that has lost everything has it again by the second look."""
        missing: set[str] = set()
        while True:
            try:
                await supply.look()
                loaded = residency.loaded()
                gone = loaded - await self._sources.known(sorted(loaded))
                await residency.unload_idle(gone & missing)
                missing = gone
            except OSError as error:
                _log.warning("adapter_cache_not_read", reason=error.strerror or str(error))
            except EngineDied:
                return  # and with it the worker, which says so
            except Exception as error:
                if not is_transient(error):
                    raise
            await asyncio.sleep(self._forget_every_seconds)
