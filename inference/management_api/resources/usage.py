"""GET usage and GET costs: what was used and what it cost, by day, project, key, model, adapter or
tier; of one tenant, or for operators of all."""

import csv
import io
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal

from django.http import HttpResponse
from msgspec import Meta, field
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.response import Response

from inference.errors import InvalidRequest
from inference.management_api.callers import KeyBearer, Person
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import Handler, TenantView
from inference.usage.reports import (
    Dimension,
    UsageQuery,
    aggregate,
    counts,
    quantiles,
    total_cost_nanos,
)
from inference.usage.rollups import COUNTERS
from tenants.access.people import tenants_of
from tenants.isolation.audit_actor import audit_actor
from tenants.isolation.scoping import current_scope, operator_scope
from tenants.money import decimal_dollars
from tenants.pagination import Order, page
from tenants.permissions import Permission
from tenants.spreadsheet import spreadsheet_cell

_DEFAULT_DAYS: Final = 30
_MAX_DAYS: Final = 366
_MAX_CSV_ROWS: Final = 100_000
_DEFAULT_GROUPS: Final = "day,project"
_USAGE: Final = tuple(name for name in COUNTERS if name != "cost_nanos")
_COSTS: Final = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos")
_LATENCIES: Final = {
    "ttft_ms": "ttft_histogram",
    "inter_token_ms": "itl_histogram",
    "duration_ms": "duration_histogram",
}

Name = Annotated[str, Meta(max_length=200)]


class ReportQuery(ListQuery):
    """Days in UTC, both included; by default the last 30. `group_by` names what to group by, with
    commas between; a CSV file has all rows, without pages."""

    from_: date | None = field(name="from", default=None)
    to: date | None = None
    group_by: Annotated[str, Meta(max_length=100)] = _DEFAULT_GROUPS
    project_id: uuid.UUID | None = None
    api_key_id: uuid.UUID | None = None
    model: Name | None = None
    adapter: Name | None = None
    tier: Name | None = None
    format: Literal["json", "csv"] | None = None


class AnyTenantsReportQuery(ReportQuery):
    """`tenant_id` left out: the caller's one tenant; for operators, all."""

    tenant_id: uuid.UUID | None = None


class CsvRenderer(BaseRenderer):
    """What may be accepted besides JSON; `_csv` writes it."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a report writes its own CSV")


class _ReportView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    parameters: ClassVar = {"GET": ReportQuery}
    renderer_classes = [JSONRenderer, CsvRenderer]
    # What the report is of, whether it tells latencies.
    name: ClassVar[str]
    with_latencies: ClassVar[bool]

    def get(self) -> HttpResponse:
        query = _usage_query(self.query, datetime.now(UTC).date())
        rows = aggregate(query, with_latencies=self.with_latencies)
        if self._wants_csv():
            return self._csv(query, rows)
        found = page(rows, self._order(query), limit=self.query.limit, cursor=self.query.cursor)
        self.request.accepted_renderer = JSONRenderer()
        self.request.accepted_media_type = JSONRenderer.media_type
        return listed(
            found,
            lambda row: {
                "object": f"{self.name}.total",
                **_groups(query, row),
                **self.rendered(row),
            },
            **{"from": query.first, "to": query.last, "group_by": query.group_by},
            **self.of_all(query),
        )

    def rendered(self, row: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def of_all(self, query: UsageQuery) -> dict[str, Any]:
        """Return the totals of all rows."""
        return {}

    def _order(self, query: UsageQuery) -> Order:
        fields = {
            each.column: date.fromisoformat
            if each is Dimension.DAY
            else uuid.UUID
            if each.column.endswith("_id")
            else str
            for each in query.group_by
        }
        return Order(name=f"{self.name} by {' '.join(fields)}", fields=fields, is_descending=True)

    def _wants_csv(self) -> bool:
        if self.query.format is not None:
            return bool(self.query.format == "csv")
        renderer, _ = self.perform_content_negotiation(self.request)
        return renderer.format == "csv"

    def _csv(self, query: UsageQuery, rows: Any) -> HttpResponse:
        found = page(rows, self._order(query), limit=_MAX_CSV_ROWS)
        if found.next_cursor is not None:
            raise InvalidRequest(
                f"This has more than {_MAX_CSV_ROWS} rows; ask for fewer days or groups.",
                param="group_by",
            )
        lines = [_flat({**_groups(query, row), **self.rendered(row)}) for row in found.rows]
        text = io.StringIO()
        writer = csv.writer(text)
        if lines:
            writer.writerow(lines[0])
            writer.writerows(map(spreadsheet_cell, line.values()) for line in lines)
        return HttpResponse(
            text.getvalue(),
            content_type="text/csv; charset=utf-8",
            headers={
                "Content-Disposition": f'attachment; filename="{self.name}-{query.first}'
                f'-{query.last}.csv"'
            },
        )


class _AnyTenantsReport(_ReportView):
    """The same without a tenant in the address."""

    parameters: ClassVar = {"GET": AnyTenantsReportQuery}

    def answer(self, handler: Handler, **ids: Any) -> Response:
        self.identify()
        if self._is_operators():
            actor = self.caller.as_actor()
            with audit_actor(actor, self.caller.address), operator_scope(f"{self.name} report"):
                return handler(**ids)
        return self.answer_within(self._tenant_id(), handler, **ids)

    def _is_operators(self) -> bool:
        if not isinstance(self.caller, Person):
            return False
        user = self.caller.user
        return user.is_staff and user.has_perm("inference.view_usagerecord")

    def _tenant_id(self) -> uuid.UUID:
        given: uuid.UUID | None = self.query.tenant_id
        if given is not None:
            return given
        if isinstance(self.caller, KeyBearer):
            return self.caller.key.tenant_id
        places = tenants_of(self.caller.user, limit=2).rows
        if len(places) != 1:
            raise InvalidRequest(
                "You belong to no tenant or to several: say which with 'tenant_id'.",
                param="tenant_id",
            )
        return uuid.UUID(str(places[0].tenant.id))


class UsageView(_ReportView):
    name = "usage"
    with_latencies = True

    def rendered(self, row: Mapping[str, Any]) -> dict[str, Any]:
        latencies = {name: quantiles(row[column]) for name, column in _LATENCIES.items()}
        return {**counts(row, _USAGE), **latencies}


class CostsView(_ReportView):
    name = "cost"
    with_latencies = False

    def rendered(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **counts(row, _COSTS),
            "cost_dollars": decimal_dollars(int(row["cost_nanos"]), digits=9),
        }

    def of_all(self, query: UsageQuery) -> dict[str, Any]:
        nanos = total_cost_nanos(query)
        return {"total_cost_nanos": nanos, "total_cost_dollars": decimal_dollars(nanos, digits=9)}


class AnyTenantsUsageView(_AnyTenantsReport, UsageView):
    """GET /api/v1/usage."""


class AnyTenantsCostsView(_AnyTenantsReport, CostsView):
    """GET /api/v1/costs."""


def _usage_query(query: ReportQuery, today: date) -> UsageQuery:
    first, last = _days(query, today)
    return UsageQuery(
        first=first,
        last=last,
        group_by=_dimensions(query.group_by),
        tenant_id=getattr(query, "tenant_id", None),
        project_id=query.project_id,
        api_key_id=query.api_key_id,
        model=query.model,
        adapter=query.adapter,
        tier=query.tier,
    )


def _days(query: ReportQuery, today: date) -> tuple[date, date]:
    last = query.to or today
    first = query.from_ or max(date.min, last - min(timedelta(_DEFAULT_DAYS - 1), last - date.min))
    if first > last:
        raise InvalidRequest("'from' must not be after 'to'.", param="from")
    if (last - first).days >= _MAX_DAYS:
        raise InvalidRequest(f"Ask for at most {_MAX_DAYS} days at once.", param="from")
    return first, last


def _dimensions(text: str) -> tuple[Dimension, ...]:
    scope = current_scope()
    known = [each for each in Dimension if each is not Dimension.TENANT or _sees_all(scope)]
    names = text.split(",")
    if len(set(names)) < len(names) or not set(names) <= set(known):
        raise InvalidRequest(
            f"'group_by' takes each of these once, with commas between: {', '.join(known)}.",
            param="group_by",
        )
    return tuple(map(Dimension, names))


def _sees_all(scope: Any) -> bool:
    return scope is not None and scope.is_operator


def _groups(query: UsageQuery, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "date" if each is Dimension.DAY else each.column: row[each.column]
        for each in query.group_by
    }


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
