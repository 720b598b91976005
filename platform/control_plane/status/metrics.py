"""/metrics: this process's counters, and the state of parts, pools and workers at scrape time.

A scraper has no key: models that are not public, and their pools, are summed under one name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from control_plane.status.health import HealthReport, PoolState

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_NOT_PUBLIC: Final = "(not public)"


def render(report: HealthReport) -> bytes:
    """Return Prometheus' text format. Every gateway reports the same pools: take the maximum."""
    moment = CollectorRegistry()
    moment.register(_Moment(report))
    return generate_latest(REGISTRY) + generate_latest(moment)


class _Moment(Collector):
    def __init__(self, report: HealthReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("penstock_part_up", "1 if the part is healthy.", labels=["part"])
        for part in self._report.parts:
            up.add_metric([part.name.lower().replace(" ", "_")], float(part.is_well))
        yield up
        ready = float(self._report.is_ready)
        yield GaugeMetricFamily("penstock_ready", "1 if a request would be served.", value=ready)
        models = self._report.models
        public = {model.pool.name for model in models if model.is_public}
        for name, about, value_of in _POOL_FAMILIES:
            yield _gauge(
                f"penstock_pool_{name}",
                about,
                "pool",
                (
                    (pool.name if pool.name in public else _NOT_PUBLIC, value_of(pool))
                    for pool in self._report.pools
                ),
            )
        yield _gauge(
            "penstock_model_ready_workers",
            "Workers that accept requests.",
            "model",
            (
                (model.policy.name if model.is_public else _NOT_PUBLIC, len(model.pool.ready))
                for model in models
            ),
        )


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
)
