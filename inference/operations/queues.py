"""The queues as they are now: what waits in each pool and for how long, and who has which share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from gpu_workers.protocol import functions, keys
from inference.dispatch.answers import known_wait
from inference.lua_constants import CLASS_WEIGHTS
from inference.pools import alone, known_pools

FLOWS_SHOWN: Final = 200
_PAGE: Final = 200
# What runs has mostly arrived before what waits; beyond so many the oldest is not looked for.
_MOST_PAGES: Final = 25


@dataclass(frozen=True, kw_only=True)
class ClassQueue:
    """What one service class has in a pool: requests that wait, sequences that run, and what one
    more request of a tenant without any would wait, None where nobody can tell."""

    name: str
    waiting: int
    running: int
    wait_ms: int | None


@dataclass(frozen=True, kw_only=True)
class Flow:
    """What one tenant has in one class of a pool. `share` is what its weight, times that of its
    class, entitles it to of the slots that all active ones share; `held` is its part of the
    sequences that run: both 0 to 1."""

    tenant_id: str
    service_class: str
    share: float
    held: float
    running: int
    waiting: int


@dataclass(frozen=True, kw_only=True)
class PoolQueue:
    """A pool's queue. `oldest_ms`: how long the request that arrived first of those that wait has
    been there, None where none waits or was found. `flows` are those of the newest requests."""

    name: str
    queued: int
    slots: int
    free: int
    oldest_ms: int | None
    classes: tuple[ClassQueue, ...]
    flows: tuple[Flow, ...]


def read_queues(redis: Redis) -> list[PoolQueue]:
    """Return every pool that has slots, or something that waits, by name; not one whose queue
    cannot be read, which `read_fleet` tells."""
    queues = []
    for pool in known_pools(redis):
        with alone(pool):
            queues.append(_queue(redis, pool))
    return [queue for queue in queues if queue.slots or queue.queued]


def _queue(redis: Redis, pool: str) -> PoolQueue:
    pipeline = redis.pipeline(transaction=False)
    pipeline.time()
    pipeline.hgetall(keys.pool_scheduler(pool))
    pipeline.zcard(keys.pool_queue(pool))
    pipeline.zrange(keys.pool_active_flows(pool), 0, FLOWS_SHOWN - 1, desc=True)
    for service_class in CLASS_WEIGHTS:
        # Of nobody: an id that no tenant has.
        pipeline.fcall_ro(functions.FORECAST, 1, keys.pool_prefix(pool), service_class, "-")
    (seconds, microseconds), numbers, queued, active, *forecasts = pipeline.execute()
    arrived_ms = _oldest(redis, pool) if queued else None
    now_ms = seconds * 1000 + microseconds // 1000
    return PoolQueue(
        name=pool,
        queued=queued,
        slots=_number(numbers, "slots"),
        free=max(0, _number(numbers, "free")),
        oldest_ms=None if arrived_ms is None else max(0, now_ms - arrived_ms),
        classes=tuple(
            ClassQueue(
                name=name,
                waiting=_number(numbers, f"{name}:waiting"),
                running=_number(numbers, f"{name}:running"),
                wait_ms=known_wait(wait_ms),
            )
            for name, (_, wait_ms, *_) in zip(CLASS_WEIGHTS, forecasts, strict=True)
        ),
        flows=_flows(redis, pool, [each.decode() for each in active], numbers),
    )


def _oldest(redis: Redis, pool: str) -> int | None:
    """Return when the request that waits and arrived first did so, in ms."""
    for page in range(_MOST_PAGES):
        opened = cast(
            "list[tuple[bytes, float]]",
            redis.zrange(
                keys.pool_open_requests(pool),
                page * _PAGE,
                (page + 1) * _PAGE - 1,
                withscores=True,
            ),
        )
        if not opened:
            return None
        waits: Any = redis.zmscore(keys.pool_queue(pool), [each.decode() for each, _ in opened])
        waiting = (score for (_, score), wait in zip(opened, waits, strict=True) if wait)
        if (first := next(waiting, None)) is not None:
            return int(first)
    return None


def _flows(
    redis: Redis, pool: str, active: Sequence[str], numbers: dict[bytes, bytes]
) -> tuple[Flow, ...]:
    pipeline = redis.pipeline(transaction=False)
    for each in active:
        service_class, _, tenant_id = each.partition(":")
        pipeline.hmget(
            keys.pool_flow(pool, service_class, tenant_id), ["share", "running", "waiting"]
        )
    found: list[Any] = pipeline.execute() if active else []
    weights = max(1, _number(numbers, "weights"))
    running = max(1, sum(_number(numbers, f"{name}:running") for name in CLASS_WEIGHTS))
    flows = [
        Flow(
            tenant_id=each.partition(":")[2],
            service_class=each.partition(":")[0],
            share=float(share or 0) / weights,
            held=float(runs or 0) / running,
            running=int(float(runs or 0)),
            waiting=int(float(waits or 0)),
        )
        for each, (share, runs, waits) in zip(active, found, strict=True)
    ]
    return tuple(sorted(flows, key=lambda flow: (-flow.running, -flow.waiting, flow.tenant_id)))


def _number(numbers: dict[bytes, bytes], field: str) -> int:
    return int(float(numbers.get(field.encode(), 0)))
