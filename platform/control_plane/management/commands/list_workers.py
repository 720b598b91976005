"""manage.py list_workers [--pool POOL]"""

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from gpu_workers.protocol.redis_url import connect_async
from inference.dispatch.worker_registry import PoolWorker, WorkerRegistry
from inference.pools import read_known_pools
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--pool", help="only of this pool")

    def handle(self, *_: Any, **options: Any) -> None:
        workers = asyncio.run(workers_of(options["pool"]))
        self.report_rows(options, [facts_of(worker) for worker in workers], of="workers")


async def workers_of(pool: str | None) -> list[PoolWorker]:
    """Return the workers of a pool, or of all."""
    async with connect_async(settings.PENSTOCK_DISPATCH_REDIS_URL) as redis:
        registry = WorkerRegistry(redis)
        pools = await read_known_pools(redis) if pool is None else [pool]
        found = [worker for each in pools for worker in await registry.workers(each)]
    return sorted(found, key=lambda worker: (worker.info.pool, worker.info.name))


def facts_of(worker: PoolWorker) -> dict[str, Fact]:
    """Return a worker as a list shows it."""
    info = worker.info
    return {
        "name": info.name,
        "pool": info.pool,
        "state": _state(worker),
        "running": info.running,
        "slots": info.slots,
        "model": info.model,
        "engine": f"{info.engine} {info.engine_version}".strip(),
        "host": info.host,
        "problem": info.problem,
    }


def _state(worker: PoolWorker) -> str:
    if not worker.is_live:
        return "lost"
    return "busy" if worker.is_busy else worker.info.state.value
