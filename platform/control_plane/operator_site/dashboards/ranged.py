"""A dashboard of a range of days: range and filters stand in its address, its tables can be had as
files. What it shows is read anew once a minute, and asked for more rarely than what is live."""

import csv
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any, Final

from django import forms
from django.contrib.admin.sites import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from control_plane.live.panels import Panel
from control_plane.operator_site.dashboards.dashboard import Dashboard
from tenants.spreadsheet import spreadsheet_cell

FRESH_SECONDS: Final = 60.0
_EVERY_MS: Final = 10_000
_DEFAULT_DAYS: Final = 7
_MOST_DAYS: Final = 366
_DAY: Final = {"type": "date"}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Days in UTC, both included, and what filters say, by their names; those that say nothing are
    left out."""

    first: date
    last: date
    filters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def begin(self) -> datetime:
        return datetime.combine(self.first, time.min, UTC)

    @property
    def end(self) -> datetime:
        """Return the moment after the last day."""
        return datetime.combine(self.last, time.min, UTC) + timedelta(days=1)

    @property
    def variant(self) -> str:
        """Return what tells it apart, of bounded length: filters are what somebody has typed."""
        text = repr((self.first, self.last, sorted(self.filters.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


Table = Sequence[Sequence[object]]


def ranged_panel(
    selection: Selection, *, name: str, title: str, template: str, read: Callable[[Selection], Any]
) -> Panel:
    """Return a panel that shows what `read` has of a selection."""
    return Panel(
        name=name,
        title=title,
        template=template,
        read=partial(read, selection),
        fresh_seconds=FRESH_SECONDS,
        variant=selection.variant,
    )


class NoTable(Exception):
    """Why there is no file at the moment, as a sentence."""


class SelectionForm(forms.Form):
    """The range and filters of an address. A field that is wrong says so and selects nothing."""

    to = forms.DateField(label="To (UTC)", required=False, widget=forms.DateInput(attrs=_DAY))

    def __init__(self, data: Any, filters: Mapping[str, forms.Field], today: date) -> None:
        shown = data.copy()
        last = _day(shown.get("to")) or today
        shown.setdefault("to", last.isoformat())
        shown.setdefault("from", _default_first(last).isoformat())
        super().__init__(shown, auto_id="filter_%s")
        self._today = today
        # A word of Python's cannot be declared.
        self.fields["from"] = forms.DateField(
            label="From (UTC)", required=False, widget=forms.DateInput(attrs=_DAY)
        )
        self.order_fields(["from", "to"])
        self.fields.update(filters)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors.keys() & {"from", "to"}:
            last = cleaned.get("to") or self._today
            first = cleaned.get("from") or _default_first(last)
            if first > last:
                self.add_error("from", "It must not be after the last day.")
            elif last > self._today + timedelta(days=_MOST_DAYS):
                self.add_error("to", "It must not be more than a year ahead.")
            elif (last - first).days >= _MOST_DAYS:
                self.add_error("from", f"Ask for at most {_MOST_DAYS} days at once.")
        return cleaned

    def selection(self) -> Selection:
        self.full_clean()
        chosen = {name: value for name, value in self.cleaned_data.items() if value}
        last = chosen.pop("to", None) or self._today
        first = chosen.pop("from", None) or _default_first(last)
        if self.errors.keys() & {"from", "to"}:
            first, last = _default_first(self._today), self._today
        return Selection(first=first, last=last, filters=chosen)


@dataclass(frozen=True, kw_only=True)
class RangedDashboard(Dashboard):
    """`build` returns the panels of a selection, `filters` the fields beside its days, and each of
    `tables` the rows of a file, of which the first is its head; in an operator's scope."""

    build: Callable[[Selection], tuple[Panel, ...]]
    filters: Callable[[], Mapping[str, forms.Field]] = dict
    tables: Mapping[str, Callable[[Selection], Table]] = field(default_factory=dict)
    every_ms: int = _EVERY_MS

    def urls(self, site: AdminSite) -> list[URLPattern]:
        return [
            *super().urls(site),
            path(
                f"dashboards/{self.name}/<slug:table>.csv",
                site.admin_view(self._file),
                name=f"dashboard-{self.name}-csv",
            ),
        ]

    def panels_of(self, request: HttpRequest) -> tuple[Panel, ...]:
        return self.build(self._form(request).selection())

    def context(self, request: HttpRequest) -> dict[str, object]:
        context = super().context(request)
        query = request.GET.urlencode()
        return {
            **context,
            "form": self._form(request),
            "fragment": f"{context['fragment']}?{query}",
            "files": [(name, f"{self._file_address(name)}?{query}") for name in self.tables],
        }

    def _form(self, request: HttpRequest) -> SelectionForm:
        return SelectionForm(request.GET, self.filters(), timezone.now().astimezone(UTC).date())

    def _file_address(self, table: str) -> str:
        return reverse(f"admin:dashboard-{self.name}-csv", args=[table])

    def _file(self, request: HttpRequest, table: str) -> HttpResponse:
        return require_safe(self._csv)(request, table)

    def _csv(self, request: HttpRequest, table: str) -> HttpResponse:
        self.check(request)
        rows_of = self.tables.get(table)
        if rows_of is None:
            raise Http404
        form = self._form(request)
        selection = form.selection()
        if form.errors:
            # A file of other days than were asked for would not say so.
            return _plain(400, form.errors.as_text())
        try:
            rows = rows_of(selection)
        except NoTable as error:
            return _plain(409, str(error))
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(
            [spreadsheet_cell(cell) for cell in row] for row in rows
        )
        name = f"{self.name}-{table}-{selection.first}-{selection.last}.csv"
        return HttpResponse(
            text.getvalue(),
            headers={
                "Content-Type": "text/csv; charset=utf-8",
                "Content-Disposition": content_disposition_header(True, name) or "attachment",
                "Cache-Control": "no-store",
            },
        )


def _plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")


def _default_first(last: date) -> date:
    return max(date.min, last - min(timedelta(_DEFAULT_DAYS - 1), last - date.min))


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        return None
