"""What Celery does for inference; `control_plane/celery.py` says when."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from celery import shared_task
from django.conf import settings
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.redis_url import connect_async
from inference import dispatch, reservations
from inference.models import Worker
from inference.redis_functions import ADMISSION, DISPATCH, FunctionLibrary
from inference.worker_registry import PoolWorker, WorkerRegistry
from tenants.scoping import operator_scope

_T = TypeVar("_T")
_LIBRARIES: Final = {keys.ADMISSION_LIBRARY: ADMISSION, keys.DISPATCH_LIBRARY: DISPATCH}


@shared_task(name="inference.keep_functions", expires=5)  # type: ignore[untyped-decorator]
def keep_functions() -> int:
    """Give the functions back to a Redis that restarted empty, which gateways and workers may not;
    returns how many libraries it lacked."""
    return _on_dispatch_redis(_load_lost_functions)


@shared_task(name="inference.sweep_reservations", expires=10)  # type: ignore[untyped-decorator]
def sweep_reservations() -> int:
    """Settle what requests reserved that are no more; returns how many."""
    return _on_dispatch_redis(reservations.sweep)


@shared_task(name="inference.end_abandoned_requests", expires=10)  # type: ignore[untyped-decorator]
def end_abandoned_requests() -> int:
    """End the requests of gateways that died; returns how many."""
    return _on_dispatch_redis(dispatch.end_abandoned)


@shared_task(name="inference.copy_workers", expires=10)  # type: ignore[untyped-decorator]
def copy_workers() -> int:
    """Copy the registry of workers into the table that operators see; returns how many live."""
    seen = _on_dispatch_redis(_registered_workers)
    live = [worker.info for worker in seen if worker.is_live]
    with operator_scope("copy of the worker registry"):
        Worker.objects.see(live)
    return len(live)


async def _load_lost_functions(redis: Redis) -> int:
    return sum(
        [
            await FunctionLibrary(redis, files).load_if_lost(name)
            for name, files in _LIBRARIES.items()
        ]
    )


async def _registered_workers(redis: Redis) -> list[PoolWorker]:
    registry = WorkerRegistry(redis)
    return [worker for pool in await registry.pools() for worker in await registry.workers(pool)]


def _on_dispatch_redis(work: Callable[[Redis], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        async with connect_async(settings.PENSTOCK_DISPATCH_REDIS_URL, socket_timeout=10) as redis:
            return await work(redis)

    return asyncio.run(run())
