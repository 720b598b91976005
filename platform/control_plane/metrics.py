"""/metrics: what this process counted, and the state of parts, pools and workers at this moment."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from control_plane.health import HealthReport, PoolState

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def render(report: HealthReport) -> bytes:
    """Prometheus' text format. Pools are the same seen from every gateway: take the maximum."""
    moment = CollectorRegistry()
    moment.register(_Moment(report))
    return generate_latest(REGISTRY) + generate_latest(moment)


class _Moment(Collector):
    def __init__(self, report: HealthReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("penstock_part_up", "1 if a part is well.", labels=["part"])
        for part in self._report.parts:
            up.add_metric([part.name.lower().replace(" ", "_")], float(part.is_well))
        yield up
        ready = float(self._report.is_ready)
        yield GaugeMetricFamily("penstock_ready", "1 if a request would be answered.", value=ready)
        for name, about, value_of in _POOL_FAMILIES:
            family = GaugeMetricFamily(f"penstock_pool_{name}", about, labels=["pool"])
            for pool in self._report.pools:
                family.add_metric([pool.name], float(value_of(pool)))
            yield family
        served = GaugeMetricFamily(
            "penstock_model_ready_workers", "Workers that take requests.", labels=["model"]
        )
        for model in self._report.models:
            served.add_metric([model.policy.name], float(len(model.pool.ready)))
        yield served


def _slots(pool: PoolState) -> int:
    return sum(worker.info.slots for worker in pool.live)


def _running(pool: PoolState) -> int:
    return sum(worker.info.running for worker in pool.live)


def _waiting_in_engine(pool: PoolState) -> int:
    return sum(worker.info.waiting_in_engine for worker in pool.live)


_POOL_FAMILIES: Final = (
    ("queue_length", "Requests that wait for a worker.", lambda pool: pool.queued),
    ("open_requests", "Requests that have not ended.", lambda pool: pool.open_requests),
    ("live_workers", "Workers that hold their lease.", lambda pool: len(pool.live)),
    ("ready_workers", "Workers that take requests.", lambda pool: len(pool.ready)),
    ("worker_slots", "Requests that the live workers can hold.", _slots),
    ("running_requests", "Requests that the live workers hold.", _running),
    ("engine_waiting_requests", "Requests in the engines' own queues.", _waiting_in_engine),
    (
        "unrecorded_usage_entries",
        "Terminal records on their way to PostgreSQL.",
        lambda pool: pool.unrecorded_usage,
    ),
)
