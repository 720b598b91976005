"""What a pool's workers and the control plane say to one another of adapters, in Redis."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterBase, AdapterEffect, AdapterSource

# The control plane reads them every few seconds; what nobody has read by then is found again.
EFFECTS_SECONDS: Final = 86_400


class AdapterSources:
    """The calls of one pool, each one round trip. What Redis answers instead goes to the caller."""

    def __init__(self, redis: "Redis", *, pool: str) -> None:
        self._redis = redis
        self._sources = keys.pool_adapter_sources(pool)
        self._pins = keys.pool_adapter_pins(pool)
        self._base = keys.pool_adapter_base(pool)
        self._effects = keys.pool_adapter_effects(pool)

    async def read(self, name: str) -> AdapterSource | None:
        """Return where an adapter comes from; None of one that the pool does not have. Raises
        `WireFormatError`."""
        found: Any = await self._redis.hget(self._sources, name)
        return None if found is None else codec.decode_adapter_source(found)

    async def known(self, names: list[str]) -> set[str]:
        """Return those of the adapters that the pool has."""
        if not names:
            return set()
        pipeline = self._redis.pipeline(transaction=False)
        for name in names:
            pipeline.hexists(self._sources, name)
        answers = await pipeline.execute()
        return {name for name, is_known in zip(names, answers, strict=True) if is_known}

    async def pins(self) -> dict[str, int]:
        """Return the pinned adapters, each with its place among its tenant's. Raises
        `WireFormatError`."""
        found: Any = await self._redis.get(self._pins)
        return {} if found is None else codec.decode_adapter_pins(found).places

    async def sizes(self, names: list[str]) -> dict[str, int]:
        """Return how many bytes those of the adapters have, sealed, that the pool has."""
        if not names:
            return {}
        rows: Any = await self._redis.hmget(self._sources, names)
        sizes = {}
        for name, row in zip(names, rows, strict=True):
            with suppress(codec.WireFormatError):
                if row is not None:
                    sizes[name] = codec.decode_adapter_source(row).size_bytes
        return sizes

    async def publish_base(self, base: AdapterBase) -> None:
        """Publish what adapters of the pool are validated against."""
        await self._redis.set(self._base, codec.encode(base))

    async def publish_effects(self, effects: Mapping[str, AdapterEffect]) -> None:
        """Publish what adapters of the pool do."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hset(self._effects, mapping={name: int(each) for name, each in effects.items()})
        pipeline.expire(self._effects, EFFECTS_SECONDS)
        await pipeline.execute()
