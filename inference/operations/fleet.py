"""The fleet as it is now: every pool with its workers and its queue, from the dispatch Redis."""

from dataclasses import dataclass
from typing import Any, cast

from redis import Redis

from gpu_workers.protocol import codec, keys
from inference.dispatch.worker_registry import PoolWorker
from inference.lua_constants import WORKER_LEASE_MS
from inference.operations.pool_identity import PoolIdentity, identity_of


@dataclass(frozen=True, kw_only=True)
class SeenWorker(PoolWorker):
    """A worker, and how long ago it was last heard of."""

    silent_ms: int


@dataclass(frozen=True, kw_only=True)
class PoolFleet:
    """A pool that a worker has ever registered for; `queued` is how many requests wait."""

    name: str
    queued: int
    workers: tuple[SeenWorker, ...]
    identity: PoolIdentity


def read_fleet(redis: Redis) -> list[PoolFleet]:
    """Return every pool that has workers or a queue, by name. Dead workers are among them until
    they are forgotten, but for those whose name a successor has taken. Raises `WireFormatError`."""
    pools = sorted(each.decode() for each in cast("set[bytes]", redis.smembers(keys.known_pools())))
    pipeline = redis.pipeline(transaction=False)
    pipeline.time()
    for pool in pools:
        pipeline.hgetall(keys.pool_workers(pool))
        pipeline.zrange(keys.pool_heartbeats(pool), 0, -1, withscores=True)
        pipeline.zcard(keys.pool_queue(pool))
        pipeline.hgetall(keys.pool_identity(pool))
    (seconds, microseconds), *answers = pipeline.execute()
    now_ms = seconds * 1000 + microseconds // 1000
    fleet = [
        PoolFleet(
            name=pool,
            queued=queued,
            workers=_workers(infos, dict(beats), now_ms),
            identity=identity_of(identity),
        )
        for pool, infos, beats, queued, identity in zip(
            pools, answers[0::4], answers[1::4], answers[2::4], answers[3::4], strict=True
        )
    ]
    return [pool for pool in fleet if pool.workers or pool.queued]


def _workers(infos: dict[bytes, bytes], beats: dict[bytes, float], now_ms: int) -> Any:
    seen = [
        SeenWorker(
            info=codec.decode_worker_info(data),
            is_live=beats[worker_id] > now_ms - WORKER_LEASE_MS,
            silent_ms=max(0, now_ms - int(beats[worker_id])),
        )
        for worker_id, data in infos.items()
        if beats.get(worker_id, -1) > 0
    ]
    return tuple(sorted(seen, key=lambda each: (each.info.name, each.info.worker_id)))
