"""Having a worker drain: it takes nothing new, finishes or gives back what it holds, and leaves, or
stays to be resumed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from redis import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from inference.lua_constants import WORKER_LEASE_MS
from inference.models.fleet import Worker
from inference.pools import alone, known_pools
from tenants.audit.log import record
from tenants.isolation.audit_actor import Verb

LOOK_EVERY_SECONDS: Final = 0.5
# A message is lost with the connection that it was read from; so it is repeated.
REPEAT_EVERY_SECONDS: Final = 5.0


class DrainError(RuntimeError):
    """A sentence for the operator."""


@dataclass(frozen=True, kw_only=True)
class FoundWorker:
    """A worker's process in the registry, by its pool and id."""

    pool: str
    worker_id: str


def find_worker(redis: Redis, name: str, *, pool: str = "") -> FoundWorker:
    """Return the process that holds a worker's name, in this pool or in whichever has it. Raises
    `DrainError` if there is none, or several pools have the name."""
    found = []
    for each in known_pools(redis):
        with alone(each):
            names = keys.pool_worker_names(each)
            if pool in ("", each) and (worker_id := cast("bytes | None", redis.hget(names, name))):
                found.append(FoundWorker(pool=each, worker_id=worker_id.decode()))
    if len(found) > 1:
        names = ", ".join(each.pool for each in found)
        raise DrainError(f"Several pools have a worker named {name!r}: {names}. Name one (--pool).")
    if not found:
        where = f" in the pool {pool!r}" if pool else ""
        raise DrainError(f"No worker named {name!r}{where}.")
    return found[0]


class Order(StrEnum):
    """What an operator may have a worker do, as its inbox says it."""

    LEAVE = "drain"
    STAY = "drain stay"
    RESUME = "resume"


def drain_worker(redis: Redis, worker: FoundWorker, *, stays: bool = False) -> None:
    """Have a worker drain, on record under whoever acts; for an operator's scope. One that `stays`
    takes nothing until it is resumed or stopped. Asking again changes nothing. Raises `DrainError`
    if it is not running."""
    _give(redis, worker, Order.STAY if stays else Order.LEAVE)
    record(Verb.DRAINED, _row(worker), pool=worker.pool)


def resume_worker(redis: Redis, worker: FoundWorker) -> None:
    """Have a worker that drained to stay take requests again, on record likewise. Raises
    `DrainError` if it is not running, or nobody had it drain and stay: one that is to leave leaves.
    """
    info = _registered(redis, worker)
    if info is None or not info.stays:
        raise DrainError(
            f"The worker {worker.worker_id} was not drained to stay; there is nothing to resume."
        )
    _give(redis, worker, Order.RESUME)
    record(Verb.RESUMED, _row(worker), pool=worker.pool)


def wait_until_drained(
    redis: Redis,
    worker: FoundWorker,
    *,
    stays: bool = False,
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once the worker has left its pool, or where it `stays` holds nothing any more. Raises
    `DrainError` if it died instead, or has not done so in time."""
    began = sent = clock()
    while (info := _registered(redis, worker)) is not None:
        now = clock()
        if stays and info.state is WorkerState.DRAINED:
            return
        if not _is_live(redis, worker):
            raise DrainError(f"The worker {worker.worker_id} has died; its requests go to others.")
        if now - began > timeout_seconds:
            raise DrainError(
                f"The worker {worker.worker_id} is {info.state.value} and holds {info.running} "
                f"sequences after {timeout_seconds:g} s; it goes on draining."
                if info.state is WorkerState.DRAINING
                else f"The worker {worker.worker_id} does not drain; stop it on its machine."
            )
        has_read_it = info.state is WorkerState.DRAINING and info.stays is stays
        if not has_read_it and now - sent >= REPEAT_EVERY_SECONDS:
            sent = now
            _send(redis, worker, Order.STAY if stays else Order.LEAVE)
        sleep(LOOK_EVERY_SECONDS)
    if stays:
        raise DrainError(f"The worker {worker.worker_id} has left; somebody else had it leave.")


def _give(redis: Redis, worker: FoundWorker, order: Order) -> None:
    if not _send(redis, worker, order):
        raise DrainError(f"The worker {worker.worker_id} is not running.")


def _send(redis: Redis, worker: FoundWorker, order: Order) -> bool:
    pool = keys.pool_prefix(worker.pool)
    return bool(redis.fcall(functions.GIVE_ORDER, 1, pool, worker.worker_id, order.value))


def _row(worker: FoundWorker) -> Worker:
    return Worker(worker_id=worker.worker_id, pool=worker.pool)


def _registered(redis: Redis, worker: FoundWorker) -> WorkerInfo | None:
    data = cast("bytes | None", redis.hget(keys.pool_workers(worker.pool), worker.worker_id))
    return None if data is None else codec.decode_worker_info(data)


def _is_live(redis: Redis, worker: FoundWorker) -> bool:
    heartbeat = redis.zscore(keys.pool_heartbeats(worker.pool), worker.worker_id)
    seconds, microseconds = redis.time()
    now_ms = seconds * 1000 + microseconds // 1000
    return heartbeat is None or heartbeat > now_ms - WORKER_LEASE_MS
