"""What a tenant has used in the month that runs, from the daily rollups. Call it inside the
tenant's scope."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from inference.usage.reports import Dimension, UsageQuery, aggregate, counts, total_cost_nanos
from tenants.billing.periods import last_day, month_before, month_of
from tenants.models import Project

# Of projects and models: the rest is one sum.
_MOST: Final = 10


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a project used of a model; `project` None is the rest of them."""

    project: Project | None
    model: str
    requests: int
    cost_nanos: int


@dataclass(frozen=True, kw_only=True)
class MonthToDate:
    """`before_nanos` is the cost of the same days of the month before; a shorter one counts
    whole."""

    first: date
    cost_nanos: int
    before_nanos: int
    requests: int
    shares: Sequence[Share]


def month_to_date(today: date) -> MonthToDate:
    """Return what was used from the first of the month to today, both included; days are UTC."""
    first = month_of(today)
    before = month_before(first)
    same_day = min(before + timedelta(days=today.day - 1), last_day(before))
    groups = (Dimension.PROJECT, Dimension.MODEL)
    rows = sorted(
        aggregate(UsageQuery(first=first, last=today, group_by=groups), with_latencies=False),
        key=lambda row: -row["cost_nanos"],
    )
    projects = Project.objects.in_bulk({row["project_id"] for row in rows[:_MOST]})
    shares = [
        Share(
            project=projects[row["project_id"]],
            model=row["model"],
            **counts(row, ("requests", "cost_nanos")),
        )
        for row in rows[:_MOST]
    ]
    rest = [counts(row, ("requests", "cost_nanos")) for row in rows[_MOST:]]
    if rest:
        shares.append(
            Share(
                project=None,
                model="",
                requests=sum(row["requests"] for row in rest),
                cost_nanos=sum(row["cost_nanos"] for row in rest),
            )
        )
    return MonthToDate(
        first=first,
        cost_nanos=sum(share.cost_nanos for share in shares),
        before_nanos=total_cost_nanos(UsageQuery(first=before, last=same_day, group_by=())),
        requests=sum(share.requests for share in shares),
        shares=shares,
    )
