"""The queues: what waits in each pool, class and for how long; and who has which share."""

from dataclasses import dataclass
from typing import Final

from control_plane.live.dispatch_redis import dashboards_redis
from control_plane.live.panels import Panel
from control_plane.operator_site.dashboards.dashboard import Dashboard
from control_plane.operator_site.dashboards.tenant_names import tenant_names
from control_plane.operator_site.dashboards.words import count, duration, percent
from inference.operations.queues import Flow, read_queues
from tenants.isolation.scoping import operator_scope

TENANTS_SHOWN: Final = 25


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """A service class in words."""

    name: str
    waiting: str
    running: str
    wait: str


@dataclass(frozen=True, kw_only=True)
class QueueTable:
    """A pool's queue in words."""

    name: str
    queued: str
    slots: str
    oldest: str
    classes: tuple[ClassRow, ...]


@dataclass(frozen=True, kw_only=True)
class ShareRow:
    """What a tenant has in a class, in words. It is `behind` where it waits and has less than its
    share."""

    tenant: str
    service_class: str
    share: str
    held: str
    running: str
    waiting: str
    is_behind: bool


@dataclass(frozen=True, kw_only=True)
class ShareTable:
    """The shares of a pool; `left_out` is how many more tenants and classes are active."""

    name: str
    rows: tuple[ShareRow, ...]
    left_out: int


def queue_tables() -> list[QueueTable]:
    """Return each pool's queue. Raises `RedisError` within seconds."""
    with dashboards_redis() as redis:
        queues = read_queues(redis)
    return [
        QueueTable(
            name=queue.name,
            queued=count(queue.queued),
            slots=f"{queue.slots - queue.free:,} / {queue.slots:,}",
            oldest=duration(queue.oldest_ms),
            classes=tuple(
                ClassRow(
                    name=each.name,
                    waiting=count(each.waiting),
                    running=count(each.running),
                    wait=duration(each.wait_ms),
                )
                for each in queue.classes
            ),
        )
        for queue in queues
    ]


def share_tables() -> list[ShareTable]:
    """Return who has which share of each pool that somebody uses. Raises `RedisError` within
    seconds."""
    with dashboards_redis() as redis:
        queues = [queue for queue in read_queues(redis) if queue.flows]
    shown = {queue.name: queue.flows[:TENANTS_SHOWN] for queue in queues}
    with operator_scope("dashboard queue"):
        names = tenant_names({flow.tenant_id for flows in shown.values() for flow in flows})
    return [
        ShareTable(
            name=queue.name,
            rows=tuple(_share(flow, names) for flow in shown[queue.name]),
            left_out=len(queue.flows) - len(shown[queue.name]),
        )
        for queue in queues
    ]


def _share(flow: Flow, names: dict[str, str]) -> ShareRow:
    return ShareRow(
        tenant=names.get(flow.tenant_id, flow.tenant_id),
        service_class=flow.service_class,
        share=percent(flow.share),
        held=percent(flow.held),
        running=count(flow.running),
        waiting=count(flow.waiting),
        is_behind=flow.waiting > 0 and flow.held < flow.share,
    )


QUEUE: Final = Dashboard(
    name="queue",
    title="Queue and fairness",
    icon="hourglass_top",
    permission="inference.view_worker",
    panels=(
        Panel(
            name="queue-pools",
            title="What waits",
            template="admin/dashboards/queue_pools.html",
            read=queue_tables,
        ),
        Panel(
            name="queue-shares",
            title="Shares held against weights",
            template="admin/dashboards/queue_shares.html",
            read=share_tables,
        ),
    ),
    legend=(
        "Expected wait is what the scheduler would tell one more request of a tenant of weight 1 "
        "that has nothing open. A tenant's share is its weight, times that of its class, among "
        "all that are active in the pool; what it holds is its part of the sequences that run. "
        "A dash is what nobody can tell."
    ),
)
