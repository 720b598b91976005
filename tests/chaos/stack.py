"""A whole Penstock of small processes: PostgreSQL, two Redis, control plane, two gateways, three
workers with the simulated engine."""

import asyncio
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async

# Before Django's settings: it puts the servers' addresses into the environment.
from tests.support.servers import servers

os.environ["DJANGO_SETTINGS_MODULE"] = "control_plane.settings"
os.environ["PENSTOCK_LOG_LEVEL"] = "warning"

from redis import Redis as SyncRedis
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from tests.chaos.load import Target
from tests.chaos.processes import STEP_MS, Gateway, Processes, SimWorker, until
from tests.support.redis_servers.keys import keys_without_end

MODEL = "chaos"
WORKERS = 3
GATEWAYS = 2
# On a machine that has other work, too.
STACK_START_SECONDS = 180.0


@dataclass(frozen=True, kw_only=True)
class Record:
    outcome: str
    finished_at: datetime
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_ms: int | None
    adapter: str
    adapter_version: int
    cost_nanos: int


class Stack:
    """`start` first; `stop` at the end, whatever happened. `environ` is for all its processes."""

    def __init__(self, model: str = MODEL, **environ: str) -> None:
        self.servers = servers()
        # What has been committed has to outlive a restart that does not wait.
        self.servers.postgres = replace(self.servers.postgres, durable=True)
        self.processes = Processes(self.servers.environ() | environ, label=f"{model}-")
        self.model = model
        self.redis = Redis.from_url(self.servers.dispatch_redis.url, socket_timeout=5)
        self.workers: list[SimWorker] = []
        self.gateways: list[Gateway] = []
        self.key = ""
        self.tenant_id = ""
        self.tenant_ids: list[str] = []
        self._names = 0

    async def start(self) -> None:
        await asyncio.to_thread(_prepare_database)
        await sync_to_async(_forget_connections)()
        celery = ["-m", "celery", "--app", "control_plane.celery", "worker", "--beat"]
        celery += ["--pool", "solo", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
        celery += ["--schedule", str(self.servers.folder / "beat")]
        await self.processes.start(*celery)
        await self.start_collector()
        await until(self._has_functions, STACK_START_SECONDS)
        await _make_model(self.model)
        self.key, self.tenant_id = await self.add_tenant(f"Chaos {self.model}")
        self.worker_url = await asyncio.to_thread(self.servers.worker_redis_url, self.model)
        # Kept over a restart, as the users of a deployment are.
        await self.redis.acl_save()
        for _ in range(WORKERS):
            await self.add_worker()
        for _ in range(GATEWAYS):
            await self.add_gateway()
        await until(self.is_ready, STACK_START_SECONDS)

    async def stop(self) -> None:
        await self.processes.stop()
        await self.redis.aclose()

    @property
    def target(self) -> Target:
        """The base model, as the first tenant asks for it."""
        return Target(self.key, self.model)

    async def add_tenant(self, name: str, *scopes: str) -> tuple[str, str]:
        """Return its key and its id."""
        key, tenant_id = await _make_tenant(name, self.model, list(scopes))
        self.tenant_ids.append(tenant_id)
        return key, tenant_id

    async def start_collector(self) -> None:
        self.collector = await self.processes.start("manage.py", "collect_usage")

    async def add_worker(self, *, step_ms: int = STEP_MS, name: str = "") -> SimWorker:
        """Under the name of a dead one it gets that one's outbox too."""
        if not name:
            self._names += 1
            name = f"sim-{self._names}"
        worker = await self.processes.worker(name, self.worker_url, self.model, step_ms=step_ms)
        self.workers.append(worker)
        return worker

    async def add_gateway(self) -> Gateway:
        gateway = await self.processes.gateway()
        self.gateways.append(gateway)
        return gateway

    @property
    def ports(self) -> list[int]:
        return [int(gateway.url.rpartition(":")[2]) for gateway in self.gateways]

    async def is_ready(self) -> bool:
        """Every worker of ours has slots to give."""
        return int(await self.redis.zcard(keys.pool_slots(self.model))) >= len(self.workers)

    async def is_empty(self) -> bool:
        """Nothing is queued, held or reserved."""
        counts = [
            await self.redis.zcard(keys.pool_open_requests(self.model)),
            await self.redis.xlen(keys.pool_usage(self.model)),
        ]
        for tenant_id in self.tenant_ids:
            counts.append(await self.redis.hlen(keys.tenant_reservations(tenant_id)))
        return not any(counts)

    async def records(self, request_ids: Iterable[str]) -> dict[str, Record]:
        """What PostgreSQL has of these requests."""
        return await sync_to_async(_records)(list(request_ids))

    def keys_without_end(self) -> list[str]:
        """Name what neither expires nor is bounded, in either Redis."""
        with (
            SyncRedis.from_url(self.servers.dispatch_redis.url) as dispatch,
            SyncRedis.from_url(self.servers.redis.url) as other,
        ):
            found = keys_without_end(dispatch, other)
        for problem in found:
            print(f"  {problem}", flush=True)
        return found

    async def _has_functions(self) -> bool:
        return len(await self.redis.function_list()) == 2


def _prepare_database() -> None:
    import django
    from django.core.management import call_command

    servers().start_postgres()
    django.setup()
    _forget_connections()
    call_command("migrate", verbosity=0)


def _forget_connections() -> None:
    """Close what this thread has to a server that an earlier drill killed."""
    from django.db import connections

    connections.close_all()


@sync_to_async
def _make_model(name: str) -> None:
    from inference.models import Pool, ServedModel
    from tenants.billing.models import Price
    from tenants.isolation.scoping import operator_scope
    from tenants.models import Tier

    with operator_scope("chaos drills"):
        Tier.objects.create(
            name=name,
            priority=0,
            weight=1,
            ttft_target_ms=5_000,
            max_queue_seconds=30,
            requests_per_minute=1_000_000,
            max_concurrent_requests=10_000,
            default_max_output_tokens=256,
            max_output_tokens=1024,
        )
        pool = Pool.objects.create(name=name)
        ServedModel.objects.create(name=name, pool=pool, context_tokens=2048)
        Price.objects.create(
            model=name,
            prompt_micros_per_million_tokens=1_000_000,
            cached_micros_per_million_tokens=500_000,
            completion_micros_per_million_tokens=2_000_000,
        )


@sync_to_async
def _make_tenant(name: str, tier: str, scopes: list[str]) -> tuple[str, str]:
    from tenants.access.api_keys import issue_api_key
    from tenants.isolation.scoping import operator_scope
    from tenants.models import Project, Tenant, Tier

    fields: dict[str, Any] = {"scopes": scopes} if scopes else {}
    with operator_scope("chaos drills"):
        tenant = Tenant.objects.create(name=name, tier=Tier.objects.get(name=tier))
        key = issue_api_key(Project.objects.create(tenant=tenant), **fields).key
    return key, str(tenant.id)


def _records(request_ids: list[str]) -> dict[str, Record]:
    from inference.models import UsageRecord
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        rows: Any = UsageRecord.objects.filter(
            request_id__in=[uuid.UUID(each) for each in request_ids]
        )
        return {
            row.request_id.hex: Record(
                outcome=row.outcome,
                finished_at=row.finished_at,
                tokens=row.total_tokens,
                prompt_tokens=row.prompt_tokens,
                cached_tokens=row.cached_tokens,
                completion_tokens=row.completion_tokens,
                ttft_ms=row.ttft_ms,
                adapter=row.adapter,
                adapter_version=row.adapter_version,
                cost_nanos=row.cost_nanos,
            )
            for row in rows
        }
