"""manage.py show_worker NAME [--pool POOL]"""

import asyncio
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from control_plane.management.commands.list_workers import facts_of, workers_of
from inference.dispatch.worker_registry import PoolWorker
from inference.management.commands.drain_worker import add_worker_arguments
from inference.operations.drain import DrainError, find_worker
from inference.usage.collector import dispatch_redis
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_worker_arguments(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            with dispatch_redis() as redis:
                found = find_worker(redis, options["name"], pool=options["pool"])
        except DrainError as error:
            raise CommandError(str(error)) from None
        for worker in asyncio.run(workers_of(found.pool)):
            if worker.info.worker_id == found.worker_id:
                self.report(options, **facts_of(worker), **_more_facts(worker))
                return
        raise CommandError(f"The worker {found.worker_id} has just left.")


def _more_facts(worker: PoolWorker) -> dict[str, Fact]:
    info = worker.info
    return {
        "warning": info.warning,
        "degraded": ", ".join(info.degraded),
        "waiting_in_engine": info.waiting_in_engine,
        "context_tokens": info.context_tokens,
        "kv_cache_tokens": info.kv_cache_tokens,
        "adapter_slots": info.adapter_slots,
        "adapters": len(info.adapters),
        "model_digest": info.model_digest,
        "gpus": None if info.gpus is None else len(info.gpus),
        "worker_id": info.worker_id,
        "pid": info.pid,
        "metrics_url": info.metrics_url,
        "started_at": datetime.fromtimestamp(info.started_at_ms / 1000, UTC),
    }
