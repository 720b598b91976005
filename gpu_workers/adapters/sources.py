"""What a pool's workers and the control plane say to one another of adapters, in Redis."""

from typing import Any

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterBase, AdapterSource


class AdapterSources:
    """The calls of one pool, each one round trip. What Redis answers instead goes to the caller."""

    def __init__(self, redis: "Redis", *, pool: str) -> None:
        self._redis = redis
        self._sources = keys.pool_adapter_sources(pool)
        self._base = keys.pool_adapter_base(pool)

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

    async def publish_base(self, base: AdapterBase) -> None:
        """Publish what adapters of the pool are validated against."""
        await self._redis.set(self._base, codec.encode(base))
