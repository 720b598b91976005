"""/t/<tenant>/usage: one chart, the groups behind it, the same as a file and as a call of the API.
Range, filters and grouping stand in the address."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import accumulate
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.curl import report_command
from control_plane.dashboard.charts.chart import Chart, Kind, Series, State, Unit, exact_text
from control_plane.dashboard.charts.hues import OTHER_HUE, hues
from control_plane.dashboard.downloads import attachment
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.keys import id_in
from control_plane.dashboard.pages.usage.explorer import OTHER, Explorer, Group
from control_plane.dashboard.pages.usage.forms import ExplorerForm
from control_plane.dashboard.pages.usage.measures import MEASURES, Measure, dimension_word
from control_plane.dashboard.pages.usage.views import ViewForm, query_of, view_rows
from control_plane.dashboard.pages.usage_links import Narrowed
from control_plane.web import figures
from inference.usage.overview import Days
from inference.usage.reports import NOBODY, Dimension, Granularity, UsageQuery
from tenants.money import decimal_dollars
from tenants.permissions import Permission
from tenants.spreadsheet import spreadsheet_cell

_IDS: Final = ("project_id", "api_key_id", "created_by_id")
_NAMES: Final = ("model", "adapter", "tier")
_BEFORE: Final = "the period before"
_NOTHING: Final = "No usage in these days. Requests count seconds after their end."


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the address asks for, with what it leaves out."""

    form: ExplorerForm
    query: UsageQuery
    measure: Measure
    is_stacked: bool
    is_cumulated: bool
    is_compared: bool

    @property
    def narrowed(self) -> Narrowed:
        days = Days(self.query.first, self.query.last)
        return Narrowed(days=days, given=self.form.in_force())


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    group: Group
    exact: str
    share_percent: str
    comparison: str
    requests_address: str


class _ExplorerPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    section = "usage"

    def asked(self) -> Asked:
        form = ExplorerForm(self.request.GET, self.access)
        chosen = form.chosen()
        first, last = form.days()
        by = [Dimension(chosen[name]) for name in ("by", "then_by") if chosen.get(name)]
        narrowed: dict[str, Any] = {name: id_in(chosen.get(name)) for name in _IDS}
        narrowed |= {name: chosen.get(name) for name in _NAMES}
        query = UsageQuery(
            first=first,
            last=last,
            group_by=tuple(by),
            granularity=form.granularity_of(chosen),
            tenant_id=self.tenant.id,
            **narrowed,
        )
        return Asked(
            form=form,
            query=query,
            measure=MEASURES[chosen.get("measure", "spend")],
            is_stacked=chosen.get("drawn") != "lines",
            is_cumulated="cumulated" in chosen,
            is_compared="compared" in chosen,
        )


class UsagePage(_ExplorerPage):
    """What is posted is the name of a view: what the address shows is saved."""

    permissions: ClassVar = {"GET": Permission.VIEW_USAGE, "POST": Permission.VIEW_USAGE}
    template_name = "dashboard/usage/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        context = self._context(request, ViewForm(access=self.access))
        return self.show(context, fragment="report")

    def post(self, request: HttpRequest) -> HttpResponse:
        view_form = ViewForm(request.POST, access=self.access)
        if view_form.is_valid():
            query = query_of(self.asked().form)
            if view := view_form.perform(lambda: view_form.save(self.access, query)):
                messages.success(request, f"The view {view.name} was saved.")
                return self.go_to(f"{request.path}?{query}")
        return self.show(self._context(request, view_form), status=422)

    def _context(self, request: HttpRequest, view_form: ViewForm) -> dict[str, Any]:
        asked = self.asked()
        explorer = Explorer(asked.query, asked.measure)
        csv_address = reverse("dashboard:usage-csv", args=[self.tenant.id])
        return {
            "filters": asked.form,
            "asked": asked,
            "first": asked.query.first,
            "last": asked.query.last,
            "chart": _chart(asked, explorer),
            "total": explorer.total,
            "total_before": explorer.total_before,
            "period": f"{explorer.days} day{'' if explorer.days == 1 else 's'}, UTC",
            "split": " / ".join(map(dimension_word, asked.query.group_by)) or "Usage",
            "rows": [self._row(asked, explorer, group) for group in explorer.groups],
            "rest": exact_text(explorer.rest, asked.measure.unit) if explorer.rest else "",
            "tabs": asked.narrowed.tabs("usage", self.tenant.id),
            "curl": self._curl(asked),
            "csv": f"{csv_address}?{request.GET.urlencode()}",
            "views": view_rows(self.access),
            "view_form": view_form,
            "may_save": self.access.may_change(Permission.VIEW_USAGE),
            "here": request.get_full_path(),
        }

    def _curl(self, asked: Asked) -> str:
        """Return the call of the API that has the figures behind the page."""
        query = asked.query
        period = query.granularity.value
        given = {
            "from": query.first,
            "to": query.last,
            "granularity": None if query.granularity is Granularity.DAY else period,
            "group_by": ",".join([period, *(each.value for each in query.group_by)]),
            **{name: getattr(query, name) for name in (*_IDS, *_NAMES)},
        }
        report = "costs" if asked.measure.unit is Unit.DOLLARS else "usage"
        return report_command(self.tenant.id, report, given)

    def _row(self, asked: Asked, explorer: Explorer, group: Group) -> GroupRow:
        share = group.amount * 100 / explorer.total if explorer.total else 0
        # The column says of what it is.
        unit = Unit.DOLLARS if asked.measure.unit is Unit.DOLLARS else Unit.COUNT
        of_group = {
            each.column: str(value)
            for each, value in zip(asked.query.group_by, group.key, strict=True)
        }
        # No filter finds what has none, e.g. no adapter.
        can_be_listed = all(of_group.values()) and str(NOBODY) not in of_group.values()
        return GroupRow(
            group=group,
            exact=exact_text(group.amount, unit),
            share_percent=f"{share:.1f} %",
            comparison=figures.change(group.amount, group.before),
            requests_address=asked.narrowed.address("requests", self.tenant.id, **of_group)
            if can_be_listed
            else "",
        )


class UsageCsv(_ExplorerPage):
    """The table as a file, with all that is listed."""

    def get(self, request: HttpRequest) -> HttpResponse:
        asked = self.asked()
        explorer = Explorer(asked.query, asked.measure)
        name = f"usage-{asked.query.first}-{asked.query.last}.csv"
        return attachment(_csv(asked, explorer), name, "text/csv; charset=utf-8")


def _chart(asked: Asked, explorer: Explorer) -> Chart:
    drawn = explorer.drawn()
    chosen = hues(name for name in drawn if name != OTHER)
    begun = _begun(explorer.moments)
    series = [
        Series(name=name, hue=chosen.get(name, OTHER_HUE), values=_summed(asked, values)[:begun])
        for name, values in drawn.items()
    ]
    # Beside areas the period before would be one more of them.
    is_stacked = asked.is_stacked and not asked.is_compared and len(series) > 1
    if asked.is_compared and series:
        before = explorer.over_time(explorer.query_before)
        series.append(Series(name=_BEFORE, hue=OTHER_HUE, values=_summed(asked, before)[:begun]))
    return Chart(
        id="usage-chart",
        title=f"{asked.measure.word} by {asked.query.granularity}"
        f"{', cumulated' if asked.is_cumulated else ''}",
        unit=asked.measure.unit,
        kind=Kind.STACKED if is_stacked else Kind.LINES,
        moments=explorer.moments[:begun] if series else (),
        series=series,
        state=State.READY if series else State.EMPTY,
        reason="" if series else _NOTHING,
    )


def _begun(moments: Sequence[date]) -> int:
    """Return how many have begun: of the others a chart would say that nothing was used then. All
    where none has."""
    now = datetime.now(UTC)
    begun = [
        each for each in moments if each <= (now if isinstance(each, datetime) else now.date())
    ]
    return len(begun or moments)


def _summed(asked: Asked, values: Iterable[int]) -> list[int]:
    return list(accumulate(values)) if asked.is_cumulated else list(values)


def _csv(asked: Asked, explorer: Explorer) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    columns = [each.column for each in asked.query.group_by]
    counted = ["requests", "prompt_tokens", "completion_tokens", "cost_dollars"]
    writer.writerow(["from", "to", *columns, "name", *counted])
    for group in explorer.groups:
        cells = [
            asked.query.first,
            asked.query.last,
            *map(str, group.key),
            group.name,
            group.requests,
            group.prompt_tokens,
            group.completion_tokens,
            decimal_dollars(group.cost_nanos, digits=9),
        ]
        writer.writerow([spreadsheet_cell(cell) for cell in cells])
    return text.getvalue().encode()
