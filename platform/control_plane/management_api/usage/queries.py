"""What reports can be asked for: their parameters, and what is refused."""

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, Final

from rest_framework import serializers

from control_plane.management_api.serializers import ListQuery
from control_plane.records import fields
from control_plane.records.days import days_of
from inference.errors import InvalidRequest
from inference.usage.pools.rebuild import are_complete
from inference.usage.reports import (
    OF_POOLS,
    OF_TENANTS,
    PERIODS,
    Dimension,
    Granularity,
    UsageQuery,
)
from tenants.isolation.scoping import current_scope

_OF_OPERATORS: Final = OF_POOLS | {Dimension.TENANT}
_FILTERS: Final = tuple(each.column for each in Dimension if each not in PERIODS)


class DaysQuery(ListQuery):
    """Days in UTC, both included; by default the last 30. `group_by` names what to group by, with
    commas between; a CSV file has all rows, without pages."""

    to = fields.DateField(default=None)
    group_by = serializers.CharField(max_length=100, allow_blank=True, default=None)
    project_id = fields.UUIDField(default=None)
    format = fields.ChoiceField(["json", "csv"], default=None)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        # A word of Python's cannot be declared.
        return {"from": fields.DateField(default=None), **super().get_fields()}


class ReportQuery(DaysQuery):
    """By default grouped by the period and `project`."""

    granularity = fields.ChoiceField(list(Granularity), default=Granularity.DAY.value)
    api_key_id = fields.UUIDField(default=None)
    created_by_id = fields.UUIDField(default=None)
    model = serializers.CharField(max_length=200, allow_blank=True, default=None)
    adapter = serializers.CharField(max_length=200, allow_blank=True, default=None)
    tier = serializers.CharField(max_length=200, allow_blank=True, default=None)


class AnyTenantsReportQuery(ReportQuery):
    """`tenant_id` left out: the caller's one tenant; for operators, all. They alone may ask for
    pools and service classes, over all tenants."""

    tenant_id = fields.UUIDField(default=None)
    pool = serializers.CharField(max_length=200, allow_blank=True, default=None)
    service_class = serializers.CharField(max_length=200, allow_blank=True, default=None)


def usage_query(query: Mapping[str, Any], today: date) -> UsageQuery:
    granularity = Granularity(query["granularity"])
    first, last = days_of(query["from"], query["to"] or today, granularity)
    period = Dimension(granularity)
    asked = UsageQuery(
        first=first,
        last=last,
        granularity=granularity,
        group_by=_dimensions(query["group_by"], period),
        **{name: query.get(name) for name in _FILTERS},
    )
    _check_pools(asked)
    return asked


def groups_of(text: str, known: Collection[str], *, granularity: str = "") -> list[str]:
    """Return the groups that a text names, with commas between. Raises `InvalidRequest` where one
    is not known, with this granularity if there is a choice of it, or is named twice."""
    names = text.split(",")
    if len(set(names)) < len(names) or not set(names) <= set(known):
        where = f"With granularity={granularity} " if granularity else ""
        raise InvalidRequest(
            f"{where}'group_by' takes each of these once, with commas between: {', '.join(known)}.",
            param="group_by",
        )
    return names


def _dimensions(text: str | None, period: Dimension) -> tuple[Dimension, ...]:
    if text is None:
        return (period, Dimension.PROJECT)
    hidden = (PERIODS - {period}) | (frozenset() if _sees_all() else _OF_OPERATORS)
    known = [each for each in Dimension if each not in hidden]
    return tuple(map(Dimension, groups_of(text, known, granularity=period)))


def _check_pools(asked: UsageQuery) -> None:
    of_pools = asked.dimensions & OF_POOLS
    if not of_pools:
        return
    param = "group_by" if of_pools & set(asked.group_by) else min(of_pools)
    if not _sees_all():
        raise InvalidRequest(f"Only operators may ask for '{min(of_pools)}'.", param=param)
    if others := asked.dimensions & OF_TENANTS:
        raise InvalidRequest(
            f"'{min(of_pools)}' is summed up over all tenants and cannot be asked for with "
            f"'{min(others)}'.",
            param=param,
        )
    if not are_complete(datetime.combine(asked.first, time.min, UTC)):
        raise InvalidRequest(
            "Usage of these days is not summed up by pool yet: run manage.py rebuild_usage_sums.",
            param=param,
        )


def _sees_all() -> bool:
    scope = current_scope()
    return scope is not None and scope.is_operator
