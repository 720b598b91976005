"""What the pools' workers say of themselves."""

import time
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from inference.lua_constants import STALE_LOOP_MS, WORKER_LEASE_MS

CACHE_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class PoolWorker:
    """A worker of a pool, and whether its last heartbeat is recent."""

    info: WorkerInfo
    is_live: bool

    @property
    def is_busy(self) -> bool:
        """Return whether its event loop has been at something else for so long that it is given
        nothing, although it lives."""
        return self.is_live and self.info.loop_age_ms > STALE_LOOP_MS

    @property
    def is_ready(self) -> bool:
        is_able = self.info.state is WorkerState.READY and not self.info.problem
        return self.is_live and is_able and not self.is_busy


class WorkerRegistry:
    """The workers of every pool, read at most once a second for each."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cache: dict[str, tuple[float, tuple[PoolWorker, ...]]] = {}

    async def pools(self) -> list[str]:
        """Return every pool that a worker has ever registered for."""
        members = await self._redis.smembers(keys.known_pools())
        return sorted(pool.decode() if isinstance(pool, bytes) else pool for pool in members)

    async def workers(self, pool: str) -> tuple[PoolWorker, ...]:
        """Return the pool's workers, dead ones included until they are forgotten; up to a second
        old."""
        read_at, workers = self._cache.get(pool, (-CACHE_SECONDS, ()))
        now = time.monotonic()
        if now - read_at >= CACHE_SECONDS:
            workers = await self._read(pool)
            self._cache[pool] = (now, workers)
        return workers

    async def is_ready(self, pool: str) -> bool:
        """Return whether a worker of the pool would take a request now."""
        return any(worker.is_ready for worker in await self.workers(pool))

    async def is_live(self, pool: str, worker_id: str) -> bool:
        """Return whether a worker holds its lease; False of one that is not known."""
        return any(
            worker.is_live and worker.info.worker_id == worker_id
            for worker in await self.workers(pool)
        )

    async def _read(self, pool: str) -> tuple[PoolWorker, ...]:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hgetall(keys.pool_workers(pool))
        pipeline.zrange(keys.pool_heartbeats(pool), 0, -1, withscores=True)
        pipeline.time()
        infos, heartbeats, (seconds, microseconds) = await pipeline.execute()
        now_ms = seconds * 1000 + microseconds // 1000
        beats = dict(heartbeats)
        return tuple(
            PoolWorker(
                info=codec.decode_worker_info(info),
                is_live=beats.get(worker_id, 0) > now_ms - WORKER_LEASE_MS,
            )
            for worker_id, info in sorted(infos.items())
        )
