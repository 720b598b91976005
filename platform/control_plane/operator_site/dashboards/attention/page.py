"""What needs attention: the index of the operators' dashboards."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from control_plane.live.panels import Panel, Reading
from control_plane.operator_site.dashboards.attention.affairs import of_billing, of_webhooks
from control_plane.operator_site.dashboards.attention.concern import Concern, many
from control_plane.operator_site.dashboards.attention.service import (
    PEAK_REFUSALS,
    PEAK_TIMES,
    of_background,
    of_fleet,
    of_pools,
    of_queues,
    of_requests,
    of_targets,
    of_usage,
)
from control_plane.operator_site.dashboards.dashboard import Dashboard
from tenants.isolation.scoping import operator_scope


def summary(readings: Sequence[Reading]) -> str:
    """Return how much there is to look at; what could not be read is never taken for nothing."""
    found = sum(len(reading.data or ()) for reading in readings)
    unread = sum(bool(reading.problem) or not reading.read_at for reading in readings)
    parts = []
    if found or not unread:
        needs = "needs" if found == 1 else "need"
        parts.append(f"{many(found, 'thing')} {needs} attention." if found else _NOTHING)
    if unread:
        parts.append(f"{many(unread, 'panel')} could not be read.")
    return " ".join(parts)


_NOTHING: Final = "Nothing needs attention."


def _in_scope(read: Callable[[], Iterator[Concern]]) -> list[Concern]:
    with operator_scope("dashboard attention"):
        return list(read())


def _panel(
    area: str,
    title: str,
    permission: str,
    read: Callable[[], Any],
    *,
    fresh_seconds: float = 5.0,
    redis: str = "The dispatch Redis",
) -> Panel:
    return Panel(
        name=f"attention-{area}",
        title=title,
        template="admin/dashboards/attention.html",
        read=read,
        fresh_seconds=fresh_seconds,
        permission=permission,
        redis=redis,
    )


ATTENTION: Final = Dashboard(
    name="attention",
    title="What needs attention",
    icon="notification_important",
    permission="inference.view_worker",
    panels=(
        _panel("fleet", "Workers", "inference.view_worker", partial(_in_scope, of_fleet)),
        _panel("pools", "Pools", "inference.view_worker", lambda: list(of_pools())),
        _panel("queues", "Queues", "inference.view_worker", lambda: list(of_queues())),
        _panel(
            "requests",
            "Requests",
            "inference.view_deadletter",
            partial(_in_scope, of_requests),
            fresh_seconds=15.0,
        ),
        _panel(
            "targets",
            "Targets",
            "inference.view_usagerecord",
            partial(_in_scope, of_targets),
            fresh_seconds=15.0,
        ),
        _panel("usage", "Usage", "inference.view_usagequarantine", partial(_in_scope, of_usage)),
        _panel(
            "billing",
            "Invoices and payments",
            "billing.view_invoice",
            partial(_in_scope, of_billing),
        ),
        _panel("webhooks", "Webhooks", "webhooks.view_endpoint", partial(_in_scope, of_webhooks)),
        _panel(
            "background",
            "Background tasks and fsck",
            "inference.view_worker",
            lambda: list(of_background()),
            redis="Celery's Redis",
        ),
    ),
    summary=summary,
    is_index=True,
    legend=(
        "Lost workers are those of the last day, disabled webhooks and deliveries that were given "
        "up those of the last week. Refusals are listed from "
        f"{PEAK_REFUSALS} in an hour on, at more than {PEAK_TIMES} times the mean of a day."
    ),
)
