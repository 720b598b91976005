"""What the pools' workers say of themselves."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from inference.lua_constants import STALE_LOOP_MS, WORKER_LEASE_MS
from inference.pools import alone

CACHE_SECONDS: Final = 1.0
# A large pool is read more rarely, so that no gateway reads more than 200 workers of it a second.
CACHE_SECONDS_A_WORKER: Final = 0.005
_REMEMBERED_SECONDS: Final = 86_400.0


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


@dataclass(frozen=True, kw_only=True)
class _Read:
    """What was read of a pool, and until when it is used."""

    until: float
    # When a worker was heard of last, by the clock of this process; minus infinity if never.
    heard_at: float
    workers: tuple[PoolWorker, ...]
    kinds: tuple[PoolWorker, ...]


class WorkerRegistry:
    """The workers of every pool, read at most once a second for each. `clock` is in seconds."""

    def __init__(self, redis: Redis, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._clock = clock
        self._cache: dict[str, _Read] = {}
        self._heard: dict[str, float] = {}  # by pool; outlives a Redis that loses everything
        self._reading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def workers(self, pool: str) -> tuple[PoolWorker, ...]:
        """Return the pool's workers, dead ones included until they are forgotten; up to a second
        old, of a pool of very many some seconds."""
        return (await self._current(pool)).workers

    async def kinds(self, pool: str) -> tuple[PoolWorker, ...]:
        """Return one worker of each kind: all that a request has to know of a pool, in which most
        are alike."""
        return (await self._current(pool)).kinds

    async def is_ready(self, pool: str) -> bool:
        """Return whether a worker of the pool would take a request now."""
        return any(worker.is_ready for worker in await self.workers(pool))

    async def is_expected(self, pool: str, within_seconds: float) -> bool:
        """Return whether a worker of the pool lives, in whatever state, or was heard of so lately
        that it, or its successor, may be back."""
        read = await self._current(pool)
        return self._clock() - read.heard_at <= within_seconds

    async def is_live(self, pool: str, worker_id: str) -> bool:
        """Return whether a worker holds its lease at this moment; False of an unknown one."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zscore(keys.pool_heartbeats(pool), worker_id)
        pipeline.time()
        heartbeat, (seconds, microseconds) = await pipeline.execute()
        now_ms = seconds * 1000 + microseconds // 1000
        return heartbeat is not None and heartbeat > now_ms - WORKER_LEASE_MS

    async def _current(self, pool: str) -> _Read:
        read = self._cache.get(pool)
        if read is None or self._clock() >= read.until:
            # Of all that find it too old at once, one reads it.
            async with self._reading[pool]:
                read = self._cache.get(pool)
                if read is None or self._clock() >= read.until:
                    read = self._cache[pool] = await self._read(pool)
        return read

    async def _read(self, pool: str) -> _Read:
        with alone(pool):
            return await self._read_all(pool)
        # Nobody can be found there.
        return _Read(
            until=self._clock() + CACHE_SECONDS, heard_at=float("-inf"), workers=(), kinds=()
        )

    async def _read_all(self, pool: str) -> _Read:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hgetall(keys.pool_workers(pool))
        pipeline.zrange(keys.pool_heartbeats(pool), 0, -1, withscores=True)
        pipeline.hget(keys.pool_scheduler(pool), "heard")
        pipeline.time()
        infos, heartbeats, heard, (unix_seconds, microseconds) = await pipeline.execute()
        now_ms = unix_seconds * 1000 + microseconds // 1000
        beats = dict(heartbeats)
        workers = tuple(_workers(pool, infos, beats, now_ms))
        seconds = max(CACHE_SECONDS, CACHE_SECONDS_A_WORKER * len(workers))
        now = self._clock()
        silent_ms = 0.0 if any(worker.is_live for worker in workers) else now_ms - float(heard or 0)
        heard_at = max(self._heard.get(pool, float("-inf")), now - max(0.0, silent_ms) / 1000)
        if heard_at > now - _REMEMBERED_SECONDS:
            self._heard[pool] = heard_at
        return _Read(
            until=now + seconds, heard_at=heard_at, workers=workers, kinds=_kinds_of(workers)
        )


def _workers(
    pool: str, infos: Mapping[bytes, bytes], beats: Mapping[bytes, float], now_ms: int
) -> Iterator[PoolWorker]:
    for worker_id, info in sorted(infos.items()):
        with alone(pool):
            yield PoolWorker(
                info=codec.decode_worker_info(info),
                is_live=beats.get(worker_id, 0) > now_ms - WORKER_LEASE_MS,
            )


def _kinds_of(workers: tuple[PoolWorker, ...]) -> tuple[PoolWorker, ...]:
    """Return workers that differ in more than who they are and what they do at the moment."""
    return tuple(
        {(each.is_live, codec.encode(_kind_of(each.info))): each for each in workers}.values()
    )


def _kind_of(info: WorkerInfo) -> WorkerInfo:
    return structs.replace(
        info,
        worker_id="",
        name="",
        running=0,
        waiting_in_engine=0,
        started_at_ms=0,
        host="",
        pid=0,
        metrics_url="",
        adapters=[],
        problem="",
        loop_age_ms=0,
        warning="",
        figures=None,
        gpus=None,
    )
