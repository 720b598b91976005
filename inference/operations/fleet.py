"""The fleet as it is now: every pool with its workers and its queue, from the dispatch Redis."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from redis import Redis

from gpu_workers.protocol import codec, keys
from inference.dispatch.worker_registry import PoolWorker
from inference.lua_constants import WORKER_LEASE_MS
from inference.operations.pool_identity import PoolIdentity, identity_of
from inference.pools import alone, known_pools


@dataclass(frozen=True, kw_only=True)
class SeenWorker(PoolWorker):
    """A worker, and how long ago it was last heard of."""

    silent_ms: int


@dataclass(frozen=True, kw_only=True)
class PoolFleet:
    """A pool; `queued` is how many requests wait, `problem` what cannot be read of it, or empty."""

    name: str
    queued: int
    workers: tuple[SeenWorker, ...]
    identity: PoolIdentity
    problem: str = ""


UNREADABLE_POOL: Final = "What Redis has of it cannot be read"
UNREADABLE_WORKERS: Final = "What some of its workers say cannot be read"


def read_fleet(redis: Redis) -> list[PoolFleet]:
    """Return every pool that has workers or a queue, by name. Dead workers are among them until
    they are forgotten, but for those whose name a successor has taken. One of which nothing can be
    read is among them too."""
    fleet = [_pool(redis, name) for name in known_pools(redis)]
    return [pool for pool in fleet if pool.workers or pool.queued or pool.problem]


def _pool(redis: Redis, name: str) -> PoolFleet:
    with alone(name):
        pipeline = redis.pipeline(transaction=False)
        pipeline.time()
        pipeline.hgetall(keys.pool_workers(name))
        pipeline.zrange(keys.pool_heartbeats(name), 0, -1, withscores=True)
        pipeline.zcard(keys.pool_queue(name))
        pipeline.hgetall(keys.pool_identity(name))
        (seconds, microseconds), infos, beats, queued, identity = pipeline.execute()
        now_ms = seconds * 1000 + microseconds // 1000
        of_now = {worker_id: beat for worker_id, beat in beats if beat > 0 and worker_id in infos}
        workers = tuple(_workers(name, infos, of_now, now_ms))
        return PoolFleet(
            name=name,
            queued=queued,
            workers=tuple(sorted(workers, key=lambda each: (each.info.name, each.info.worker_id))),
            identity=identity_of(identity),
            problem=UNREADABLE_WORKERS if len(workers) < len(of_now) else "",
        )
    return PoolFleet(
        name=name, queued=0, workers=(), identity=identity_of({}), problem=UNREADABLE_POOL
    )


def _workers(
    pool: str, infos: dict[bytes, bytes], beats: dict[bytes, float], now_ms: int
) -> Iterator[SeenWorker]:
    for worker_id, beat in beats.items():
        with alone(pool):
            yield SeenWorker(
                info=codec.decode_worker_info(infos[worker_id]),
                is_live=beat > now_ms - WORKER_LEASE_MS,
                silent_ms=max(0, now_ms - int(beat)),
            )
