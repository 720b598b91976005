"""The fleet as operators see it: workers copied from the registry in Redis, which is the truth.
Gateways are copied too, so that it is known who was there when Redis has lost everything."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.db import models, transaction
from django.utils import timezone
from msgspec import structs

from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from inference.lua_constants import WORKER_LEASE_MS
from tenants.billing.pricing.gpu_costs import add_worker_time

# The lease, and the few seconds between two copies of the registry.
SEEN_RECENTLY = timedelta(milliseconds=WORKER_LEASE_MS) + timedelta(seconds=10)
RETENTION = timedelta(days=7)
# Redis forgets a dead worker after ten minutes (LONG_DEAD_MS): from then on nothing follows from
# its not being registered.
REMEMBERED = timedelta(minutes=9)


class WorkerManager(models.Manager["Worker"]):
    @transaction.atomic
    def sync(
        self,
        live: Iterable[WorkerInfo],
        now: datetime | None = None,
        *,
        silent: Iterable[str] = (),
    ) -> None:
        """Note what live workers say of themselves, and forget those long gone. `silent` are the
        ids of registered ones that do not live: who is not even registered any more has left."""
        now = now or timezone.now()
        rows = [_row(info, now) for info in live]
        add_worker_time(self._lived(rows, now), now)
        fields = [field.name for field in Worker._meta.concrete_fields if not field.primary_key]
        self.bulk_create(
            rows, update_conflicts=True, unique_fields=["worker_id"], update_fields=fields
        )
        registered = [*(row.worker_id for row in rows), *silent]
        lately = self.filter(last_seen_at__gte=now - REMEMBERED, has_left=False)
        lately.exclude(worker_id__in=registered).update(has_left=True)
        self.filter(last_seen_at__lt=now - RETENTION).delete()

    def lost(self, since: datetime, now: datetime | None = None) -> list["Worker"]:
        """Return those last seen since then that are silent and have not left in order, unless
        another process has taken their name."""
        now = now or timezone.now()
        silent = self.filter(
            last_seen_at__gte=since, last_seen_at__lte=now - SEEN_RECENTLY, has_left=False
        )
        successor = self.filter(
            pool=models.OuterRef("pool"),
            name=models.OuterRef("name"),
            started_at__gt=models.OuterRef("started_at"),
        )
        return list(silent.exclude(models.Exists(successor)))

    def _lived(self, rows: Iterable["Worker"], now: datetime) -> dict[str, int]:
        """Return by pool for how many ms its workers have lived since they were last seen. A gap
        that is longer than a lease and a copy counts as no more than that: nobody saw it."""
        by_id = {row.worker_id: row for row in rows}
        seen = dict(
            self.select_for_update()
            .filter(worker_id__in=by_id)
            .order_by("worker_id")
            .values_list("worker_id", "last_seen_at")
        )
        lived: defaultdict[str, int] = defaultdict(int)
        for worker_id, row in by_id.items():
            since = now - seen.get(worker_id, row.started_at)
            lived[row.pool] += max(0, min(since, SEEN_RECENTLY) // timedelta(milliseconds=1))
        return dict(lived)


class Worker(models.Model):
    """One worker process, from its registration to its end."""

    worker_id = models.CharField(primary_key=True, max_length=200)
    name = models.CharField(max_length=150)
    pool = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    engine = models.CharField(max_length=40)
    engine_version = models.CharField(max_length=80)
    state = models.CharField(
        max_length=20, choices=[(state.value, state.value) for state in WorkerState]
    )
    slots = models.PositiveIntegerField()
    running = models.PositiveIntegerField()
    waiting_in_engine = models.PositiveIntegerField("queued in engine")
    context_tokens = models.PositiveIntegerField("context length (tokens)")
    kv_cache_tokens = models.PositiveBigIntegerField("KV cache (tokens)")
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField("process id")
    metrics_url = models.CharField("metrics URL", max_length=500, blank=True)
    started_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    has_left = models.BooleanField(
        "left", default=False, help_text="Drained and deregistered; not lost."
    )
    stays = models.BooleanField(
        default=False, help_text="Takes nothing until it is resumed, or stopped."
    )
    problem = models.TextField(blank=True, default="")
    warning = models.TextField(blank=True, default="")
    # As `EngineFigures` and `GpuFigures` name them; null of a worker that does not tell them.
    figures = models.JSONField("engine figures", null=True, blank=True)
    gpus = models.JSONField("GPUs", null=True, blank=True)

    objects = WorkerManager()

    class Meta:
        ordering = ["pool", "name", "-started_at"]
        indexes = [models.Index(fields=["pool", "last_seen_at"], name="worker_pool_seen")]

    def __str__(self) -> str:
        return self.worker_id

    def is_live(self, now: datetime | None = None) -> bool:
        """Return whether it held its lease when the registry was last copied."""
        return self.last_seen_at > (now or timezone.now()) - SEEN_RECENTLY


class GatewayManager(models.Manager["Gateway"]):
    @transaction.atomic
    def sync(self, live: Iterable[str], now: datetime | None = None) -> None:
        """Record which gateways run; no others do."""
        now = now or timezone.now()
        rows = [Gateway(gateway_id=gateway_id, last_seen_at=now) for gateway_id in live]
        self.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["gateway_id"],
            update_fields=["last_seen_at"],
        )
        self.exclude(gateway_id__in=[row.gateway_id for row in rows]).delete()


class Gateway(models.Model):
    """One gateway process, while it lives."""

    gateway_id = models.CharField(primary_key=True, max_length=200)
    last_seen_at = models.DateTimeField()

    objects = GatewayManager()

    def __str__(self) -> str:
        return self.gateway_id


def _row(info: WorkerInfo, now: datetime) -> Worker:
    return Worker(
        worker_id=info.worker_id,
        name=info.name,
        pool=info.pool,
        model=info.model,
        engine=info.engine,
        engine_version=info.engine_version,
        state=info.state.value,
        slots=info.slots,
        running=info.running,
        waiting_in_engine=info.waiting_in_engine,
        context_tokens=info.context_tokens,
        kv_cache_tokens=info.kv_cache_tokens,
        host=info.host,
        pid=info.pid,
        metrics_url=info.metrics_url,
        started_at=datetime.fromtimestamp(info.started_at_ms / 1000, UTC),
        last_seen_at=now,
        has_left=False,
        stays=info.stays,
        problem=info.problem,
        warning=info.warning,
        figures=None if info.figures is None else structs.asdict(info.figures),
        gpus=None if info.gpus is None else [structs.asdict(gpu) for gpu in info.gpus],
    )
