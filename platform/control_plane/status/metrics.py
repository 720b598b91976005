"""/metrics: this process's counters, and the state of parts, pools and workers at scrape time.

For whoever brings no token, models that are not public, and their pools, are summed under one name,
and tiers, which an operator may name after a tenant, under another.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from control_plane.status.background import Background
from control_plane.status.health import HealthReport, PoolState

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_NOT_PUBLIC: Final = "(not public)"
_ALL_TIERS: Final = "(all)"


def render(report: HealthReport, *, names_all: bool = False) -> bytes:
    """Return Prometheus' text format. Every gateway reports the same pools: take the maximum."""
    models = {model.policy.name for model in report.models if names_all or model.is_public}
    pools = {model.pool.name for model in report.models if model.is_public}
    if names_all:
        pools = {pool.name for pool in report.pools}
    moment = CollectorRegistry()
    moment.register(_Moment(report, models, pools))
    counted = REGISTRY if names_all else _Summed(models)
    return generate_latest(counted) + generate_latest(moment)


class _Summed(CollectorRegistry):
    """The process's families as strangers see them: `models` by name, the others under one, and no
    tier."""

    def __init__(self, models: AbstractSet[str]) -> None:
        super().__init__()
        self._models = models

    def collect(self) -> Iterator[Metric]:
        for family in REGISTRY.collect():
            sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
            for sample in family.samples:
                # The moment at which each of several counters began adds up to nothing.
                if "model" in sample.labels and sample.name.endswith("_created"):
                    continue
                shown = tuple(
                    (name, self._shown(name, text)) for name, text in sample.labels.items()
                )
                sums[sample.name, shown] += sample.value
            summed = Metric(family.name, family.documentation, family.type)
            for (name, labels), value in sums.items():
                summed.add_sample(name, dict(labels), value)
            yield summed

    def _shown(self, label: str, value: str) -> str:
        if label == "model" and value and value not in self._models:
            return _NOT_PUBLIC
        return _ALL_TIERS if label == "tier" and value else value


class _Moment(Collector):
    """`models` and `pools` are those to be named."""

    def __init__(
        self, report: HealthReport, models: AbstractSet[str], pools: AbstractSet[str]
    ) -> None:
        self._report = report
        self._models = models
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("penstock_part_up", "1 if the part is healthy.", labels=["part"])
        for part in self._report.parts:
            up.add_metric([part.name.lower().replace(" ", "_")], float(part.is_well))
        yield up
        ready = float(self._report.is_ready)
        yield GaugeMetricFamily("penstock_ready", "1 if a request would be served.", value=ready)
        models = self._report.models
        for name, about, value_of in _POOL_FAMILIES:
            yield _gauge(
                f"penstock_pool_{name}",
                about,
                "pool",
                ((self._pool(pool.name), value_of(pool)) for pool in self._report.pools),
            )
        oldest = GaugeMetricFamily(
            "penstock_pool_oldest_unrecorded_usage_seconds",
            "Age of the oldest usage record not yet in PostgreSQL.",
            labels=["pool"],
        )
        ages: dict[str, float] = {}
        for pool in self._report.pools:
            name = self._pool(pool.name)
            ages[name] = max(ages.get(name, 0.0), pool.oldest_unrecorded_seconds)
        for name, age in ages.items():
            oldest.add_metric([name], age)
        yield oldest
        yield _gauge(
            "penstock_model_ready_workers",
            "Workers that accept requests.",
            "model",
            (
                (
                    model.policy.name if model.policy.name in self._models else _NOT_PUBLIC,
                    len(model.pool.ready),
                )
                for model in models
            ),
        )
        if self._report.background is not None:
            yield from self._background(self._report.background)

    def _background(self, background: Background) -> Iterator[Metric]:
        queued = _gauge(
            "penstock_celery_queued_tasks",
            "Tasks that wait for a Celery worker, by queue.",
            "queue",
            background.queued.items(),
        )
        yield queued
        succeeded = GaugeMetricFamily(
            "penstock_beat_task_last_success_timestamp_seconds",
            "When a task of the beat last succeeded.",
            labels=["task"],
        )
        interval = GaugeMetricFamily(
            "penstock_beat_task_interval_seconds", "How often it is to run.", labels=["task"]
        )
        for task in background.tasks:
            interval.add_metric([task.name], task.interval_seconds)
            if task.succeeded_at is not None:
                succeeded.add_metric([task.name], task.succeeded_at)
        yield interval
        yield succeeded
        if (fsck := background.fsck) is not None:
            for name, about, value in (
                ("problems", "What fsck found when it ended last.", float(fsck.problems)),
                ("last_end_timestamp_seconds", "When fsck last ended.", fsck.at),
                ("duration_seconds", "How long fsck took when it ended last.", fsck.seconds),
            ):
                yield GaugeMetricFamily(f"penstock_fsck_{name}", about, value=value)
        figures = background.figures
        if figures is None:
            return
        for name, about, value in (
            (
                "webhook_deliveries_waiting",
                "Deliveries of webhooks that wait.",
                figures.webhooks_waiting,
            ),
            (
                "webhook_oldest_due_seconds",
                "How long the delivery that is due first has been due.",
                figures.webhooks_oldest_due_seconds,
            ),
            ("email_notices_waiting", "E-mails that wait.", figures.emails_waiting),
            (
                "payment_events_unresolved",
                "What payment providers told that does not fit our books, and nobody has resolved.",
                figures.payment_events_unresolved,
            ),
        ):
            yield GaugeMetricFamily(f"penstock_{name}", about, value=value)
        yield _gauge(
            "penstock_usage_quarantined_entries",
            "Usage entries that nobody is charged for until an operator has looked, by cause.",
            "cause",
            figures.quarantined.items(),
        )
        cost = GaugeMetricFamily(
            "penstock_pool_worker_cost_dollars_per_hour",
            "What the GPUs of one worker cost, as the operator has entered it.",
            labels=["pool"],
        )
        for pool, nanos in figures.worker_hour_nanos.items():
            if pool in self._pools:
                cost.add_metric([pool], nanos / 1e9)
        yield cost

    def _pool(self, name: str) -> str:
        return name if name in self._pools else _NOT_PUBLIC


def _gauge(
    name: str, about: str, label: str, values: Iterable[tuple[str, int]]
) -> GaugeMetricFamily:
    totals: Counter[str] = Counter()
    for key, value in values:
        totals[key] += value
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, total in totals.items():
        family.add_metric([key], float(total))
    return family


def _slots(pool: PoolState) -> int:
    return sum(worker.info.slots for worker in pool.live)


def _running(pool: PoolState) -> int:
    return sum(worker.info.running for worker in pool.live)


def _waiting_in_engine(pool: PoolState) -> int:
    return sum(worker.info.waiting_in_engine for worker in pool.live)


_POOL_FAMILIES: Final = (
    ("queue_length", "Requests waiting for a worker.", lambda pool: pool.queued),
    ("open_requests", "Requests that have not finished.", lambda pool: pool.open_requests),
    ("live_workers", "Workers with a valid lease.", lambda pool: len(pool.live)),
    ("ready_workers", "Workers that accept requests.", lambda pool: len(pool.ready)),
    (
        "degraded_workers",
        "Workers that serve parts of their engine on a slower or lesser path.",
        lambda pool: len(pool.degraded),
    ),
    ("worker_slots", "Requests that the live workers can run at once.", _slots),
    ("running_requests", "Requests that the live workers are running.", _running),
    ("engine_waiting_requests", "Requests waiting in the engines' own queues.", _waiting_in_engine),
    (
        "unrecorded_usage_entries",
        "Terminal usage records not yet in PostgreSQL.",
        lambda pool: pool.unrecorded_usage,
    ),
    (
        "refused_workers",
        "Registrations refused because the worker would serve something else than its pool.",
        lambda pool: pool.refused_workers,
    ),
    (
        "unreadable",
        "1 if what Redis has of the pool cannot be read.",
        lambda pool: not pool.is_readable,
    ),
)
