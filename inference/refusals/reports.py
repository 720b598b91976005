"""How many requests were refused, by any dimensions, from the sums by hour or by day; and the
newest with their sentence. Of one tenant in its scope, for operators of all."""

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final

from django.db import models
from django.db.models import Sum
from django.db.models.functions import TruncDate

from inference.models.refusal import NOBODY, DailyRefusals, NewestRefusal, RefusalRollup
from tenants.pagination import Order, Page, page


class Dimension(StrEnum):
    """What sums can be grouped by."""

    HOUR = "hour"
    DAY = "day"
    TENANT = "tenant"
    PROJECT = "project"
    API_KEY = "api_key"
    MODEL = "model"
    CODE = "code"
    LIMIT = "limit"
    SCOPE = "scope"

    @property
    def column(self) -> str:
        return f"{self}_id" if self in _WITH_ID else self.value


_WITH_ID: Final = (Dimension.TENANT, Dimension.PROJECT, Dimension.API_KEY)
PERIODS: Final = frozenset({Dimension.HOUR, Dimension.DAY})
# What days are not kept by.
_OF_HOURS: Final = frozenset({Dimension.HOUR, Dimension.PROJECT, Dimension.API_KEY})
FILTERS: Final = ("project_id", "api_key_id", "model", "code", "limit", "scope")

NEWEST_FIRST: Final = Order(
    name="newest refusals", fields={"at": datetime.fromisoformat, "id": int}, is_descending=True
)


@dataclass(frozen=True, kw_only=True)
class RefusalQuery:
    """Days in UTC, both included; what is None is not filtered by."""

    first: date
    last: date
    group_by: tuple[Dimension, ...] = ()
    tenant_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    api_key_id: uuid.UUID | None = None
    model: str | None = None
    code: str | None = None
    limit: str | None = None
    scope: str | None = None

    def rows(self) -> "models.QuerySet[Any, Any]":
        """Return the rows that count, of days where these tell enough."""
        filters = {
            name: value
            for name in ("tenant_id", *FILTERS)
            if (value := getattr(self, name)) is not None
        }
        if _OF_HOURS.isdisjoint(self.group_by) and not filters.keys() & {
            "project_id",
            "api_key_id",
        }:
            return DailyRefusals.objects.filter(day__gte=self.first, day__lte=self.last, **filters)
        hours = RefusalRollup.objects.filter(
            hour__gte=_midnight(self.first),
            hour__lte=_midnight(self.last) + timedelta(hours=23),
            **filters,
        )
        if Dimension.DAY in self.group_by:
            return hours.annotate(day=TruncDate("hour", tzinfo=UTC))
        return hours


def aggregate(query: RefusalQuery) -> "models.QuerySet[Any, Any]":
    """Return a row for each group, of its columns and `refusals`."""
    groups: models.QuerySet[Any, Any] = (
        query.rows()
        .order_by()
        .values(*(dimension.column for dimension in query.group_by))
        .annotate(refusals=Sum("count"))
    )
    return groups


def total(query: RefusalQuery) -> int:
    return int(query.rows().aggregate(refusals=Sum("count"))["refusals"] or 0)


def refusals_by(
    *dimensions: Dimension, first: date, last: date, most: int | None = None, **filters: Any
) -> list[dict[str, Any]]:
    """Return the groups with most refusals first, as columns and `refusals`; of all tenants in an
    operator's scope. `filters` are those of `RefusalQuery`."""
    query = RefusalQuery(first=first, last=last, group_by=dimensions, **filters)
    columns = [dimension.column for dimension in dimensions]
    found = aggregate(query).order_by("-refusals", *columns)[:most]
    return [{**row, "refusals": int(row["refusals"])} for row in found]


def newest_refusals(
    *, limit: int, cursor: str | None = None, **filters: Any
) -> Page[NewestRefusal]:
    """Return a page of those that kept their sentence, the newest first. Raises `BadCursor`."""
    given = {name: value for name, value in filters.items() if value is not None}
    return page(NewestRefusal.objects.filter(**given), NEWEST_FIRST, limit=limit, cursor=cursor)


def is_nobody(value: uuid.UUID | None) -> bool:
    """Return whether a project or key stands for the rest of a tenant that was too varied."""
    return value is not None and str(value) == NOBODY


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
