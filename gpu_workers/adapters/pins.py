"""Adapters that are kept at hand though nobody asks for them: pinned ones, as tenants' tiers allow.

They get at most half of what the worker has, in memory as on disk, so that there is always room for
the others; and of memory nothing that the engine's slots need, so that as many others run at once
as without pins. What does not fit in memory is kept on disk, and what does not fit there waits as
any other. Each tenant's first pin comes before anybody's second; among equals the order is chance,
another one on each worker, so that whom one has no room for another may have.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Iterable
from typing import Final

import structlog

from gpu_workers.adapters.residency import Residency
from gpu_workers.adapters.sources import AdapterSources
from gpu_workers.adapters.supply import AdapterSupply
from gpu_workers.adapters.unavailable import AdapterUnavailable
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.protocol.codec import WireFormatError
from gpu_workers.protocol.redis_errors import is_transient

LOOK_AT_PINS_SECONDS: Final = 5.0
TRY_AGAIN_SECONDS: Final = 30.0

_log = structlog.get_logger("gpu_workers.adapters.pins")


class PinnedAdapters:
    """What one worker keeps at hand: at most `most_in_memory` loaded, and sealed and open together
    at most `most_bytes` on disk."""

    def __init__(
        self,
        *,
        sources: AdapterSources,
        supply: AdapterSupply,
        residency: Residency,
        most_in_memory: int,
        most_bytes: int,
        metrics: WorkerMetrics,
        look_every_seconds: float,
    ) -> None:
        self._sources = sources
        self._supply = supply
        self._residency = residency
        self._most_in_memory = most_in_memory
        self._most_bytes = most_bytes
        self._metrics = metrics
        self._look_every_seconds = look_every_seconds
        self._salt = secrets.token_bytes(16)
        self._sizes: dict[str, int] = {}
        self._tried: dict[str, float] = {}

    async def run(self) -> None:
        """Keep pinned adapters at hand for ever; one is brought at a time."""
        while True:
            try:
                is_whole = await self._look()
            except Exception as error:
                if not is_transient(error):
                    raise
                is_whole = True
            if is_whole:
                await asyncio.sleep(self._look_every_seconds)

    async def _look(self) -> bool:
        """See what is pinned, and bring one that is missing; return whether none was. Raises a
        connection error if Redis is away."""
        try:
            places = await self._sources.pins()
        except WireFormatError as error:
            _log.warning("adapter_pins_not_read", reason=str(error))
            return True
        loaded, on_disk = await self._chosen(self._in_order(places))
        self._residency.pin(loaded)
        await self._supply.pin(loaded + on_disk)
        self._metrics.adapters_pinned(
            memory=len(loaded), disk=len(on_disk), none=len(places) - len(loaded) - len(on_disk)
        )
        return not await self._bring_one(loaded, on_disk)

    def _in_order(self, places: dict[str, int]) -> list[str]:
        return sorted(places, key=lambda name: (places[name], self._chance(name)))

    def _chance(self, name: str) -> bytes:
        """Return a number that no choice of an adapter's bytes makes small."""
        return hashlib.blake2b(name.encode(), key=self._salt, digest_size=8).digest()

    async def _chosen(self, names: list[str]) -> tuple[list[str], list[str]]:
        """Return which are kept in memory, and which on disk alone."""
        sizes = {name: self._sizes[name] for name in names if name in self._sizes}
        self._sizes = sizes | await self._sources.sizes(
            [name for name in names if name not in sizes]
        )
        loaded: list[str] = []
        on_disk: list[str] = []
        left = self._most_bytes
        for name in names:
            size = self._sizes.get(name, 0)
            if size <= 0:
                continue  # the pool has no source of it yet
            if len(loaded) < self._most_in_memory and 2 * size <= left:
                loaded.append(name)  # sealed, and opened for the engine
                left -= 2 * size
            elif size <= left:
                on_disk.append(name)
                left -= size
        return loaded, on_disk

    async def _bring_one(self, loaded: Iterable[str], on_disk: Iterable[str]) -> bool:
        now = asyncio.get_running_loop().time()
        self._tried = {name: at for name, at in self._tried.items() if at > now}
        for name in loaded:
            if name not in self._tried and not self._residency.is_loaded(name):
                self._tried[name] = now + TRY_AGAIN_SECONDS
                await self._residency.bring_pinned(name)
                return True
        for name in on_disk:
            if name not in self._tried and not self._supply.has(name):
                self._tried[name] = now + TRY_AGAIN_SECONDS
                await self._fetch(name)
                return True
        return False

    async def _fetch(self, name: str) -> None:
        try:
            opened = await self._supply.open(name)
        except AdapterUnavailable as error:
            _log.warning("pinned_adapter_not_fetched", adapter=name, reason=str(error))
        else:
            await self._supply.drop(opened.folder)
