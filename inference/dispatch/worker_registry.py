"""What the pools' workers say of themselves, for the prompt bound and for readiness."""

import time
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState

# A worker's lease: six claims, so that a late one does not make a pool look empty.
LIVE_MS: Final = 6_000
CACHE_SECONDS: Final = 1.0
# Of a pool whose workers have never said what their template adds.
UNKNOWN_OVERHEAD_TOKENS: Final = 64


@dataclass(frozen=True, kw_only=True)
class PoolWorker:
    """A worker of a pool, and whether its last heartbeat is recent."""

    info: WorkerInfo
    is_live: bool

    @property
    def is_ready(self) -> bool:
        return self.is_live and self.info.state is WorkerState.READY and not self.info.problem


class WorkerRegistry:
    """The workers of every pool, read at most once a second for each."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cache: dict[str, tuple[float, list[PoolWorker]]] = {}

    async def pools(self) -> list[str]:
        """Every pool that a worker has ever registered for."""
        members = await self._redis.smembers(keys.known_pools())
        return sorted(pool.decode() if isinstance(pool, bytes) else pool for pool in members)

    async def workers(self, pool: str) -> list[PoolWorker]:
        """The pool's workers, dead ones included until they are forgotten; up to a second old."""
        read_at, workers = self._cache.get(pool, (-CACHE_SECONDS, []))
        now = time.monotonic()
        if now - read_at >= CACHE_SECONDS:
            workers = await self._read(pool)
            self._cache[pool] = (now, workers)
        return workers

    async def is_ready(self, pool: str) -> bool:
        """Whether a worker of the pool would take a request now."""
        return any(worker.is_ready for worker in await self.workers(pool))

    async def prompt_bounds(self, pool: str, context_tokens: int) -> tuple[int, int]:
        """The most tokens that the chat template of any worker adds to one message, and the
        largest context of any: the one that is named where no worker has said."""
        workers = await self.workers(pool)
        started = [each.info for each in workers if each.info.state is not WorkerState.STARTING]
        if not started:
            return UNKNOWN_OVERHEAD_TOKENS, context_tokens
        return (
            max(info.template_overhead_tokens for info in started),
            max(info.context_tokens for info in started),
        )

    async def can_resume(self, pool: str) -> bool:
        """Whether any worker of the pool can go on from the output of any other."""
        return all(worker.info.can_resume for worker in await self.workers(pool) if worker.is_live)

    async def fits(
        self, pool: str, text_bytes: int, max_context_tokens: int | None = None
    ) -> int | None:
        """None if a prompt of so many UTF-8 bytes may fit some worker's context, or that which the
        caller has of it; else the largest context in tokens. A token is at most `max_token_bytes`
        long, so this never refuses what would fit."""
        started = [
            worker.info
            for worker in await self.workers(pool)
            if worker.is_live and worker.info.state is not WorkerState.STARTING
        ]
        contexts = [
            (min(info.context_tokens, max_context_tokens or info.context_tokens), info)
            for info in started
        ]
        if not contexts or any(
            text_bytes <= context * max(1, info.max_token_bytes) for context, info in contexts
        ):
            return None
        return max(context for context, _ in contexts)

    async def _read(self, pool: str) -> list[PoolWorker]:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hgetall(keys.pool_workers(pool))
        pipeline.zrange(keys.pool_heartbeats(pool), 0, -1, withscores=True)
        pipeline.time()
        infos, heartbeats, (seconds, microseconds) = await pipeline.execute()
        now_ms = seconds * 1000 + microseconds // 1000
        beats = dict(heartbeats)
        return [
            PoolWorker(
                info=codec.decode_worker_info(info),
                is_live=beats.get(worker_id, 0) > now_ms - LIVE_MS,
            )
            for worker_id, info in sorted(infos.items())
        ]
