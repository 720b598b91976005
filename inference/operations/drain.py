"""Having a worker drain: it takes nothing new, finishes or gives back what it holds, and leaves."""

import time
from collections.abc import Callable
from dataclasses import dataclass
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


def drain_worker(redis: Redis, worker: FoundWorker) -> None:
    """Have a worker drain, on record under whoever acts; for an operator's scope. Asking again
    changes nothing. Raises `DrainError` if it is not running."""
    if not _send(redis, worker):
        raise DrainError(f"The worker {worker.worker_id} is not running.")
    row = Worker(worker_id=worker.worker_id, pool=worker.pool)
    record(Verb.DRAINED, row, pool=worker.pool)


def wait_until_gone(
    redis: Redis,
    worker: FoundWorker,
    *,
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once the worker has left its pool. Raises `DrainError` if it died instead, or has not
    left in time."""
    began = sent = clock()
    while (info := _registered(redis, worker)) is not None:
        now = clock()
        if not _is_live(redis, worker):
            raise DrainError(f"The worker {worker.worker_id} has died; its requests go to others.")
        if now - began > timeout_seconds:
            raise DrainError(
                f"The worker {worker.worker_id} is {info.state.value} and holds {info.running} "
                f"sequences after {timeout_seconds:g} s; it goes on draining."
                if info.state is WorkerState.DRAINING
                else f"The worker {worker.worker_id} does not drain; stop it on its machine."
            )
        if info.state is not WorkerState.DRAINING and now - sent >= REPEAT_EVERY_SECONDS:
            sent = now
            _send(redis, worker)
        sleep(LOOK_EVERY_SECONDS)


def _send(redis: Redis, worker: FoundWorker) -> bool:
    pool = keys.pool_prefix(worker.pool)
    return bool(redis.fcall(functions.DRAIN, 1, pool, worker.worker_id))


def _registered(redis: Redis, worker: FoundWorker) -> WorkerInfo | None:
    data = cast("bytes | None", redis.hget(keys.pool_workers(worker.pool), worker.worker_id))
    return None if data is None else codec.decode_worker_info(data)


def _is_live(redis: Redis, worker: FoundWorker) -> bool:
    heartbeat = redis.zscore(keys.pool_heartbeats(worker.pool), worker.worker_id)
    seconds, microseconds = redis.time()
    now_ms = seconds * 1000 + microseconds // 1000
    return heartbeat is None or heartbeat > now_ms - WORKER_LEASE_MS
