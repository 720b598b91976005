"""/t/<tenant id>/refusals: requests that were refused before they ran, by reason; the newest with
what their callers were told, and what to do about it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, ClassVar, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.curl import report_command
from control_plane.dashboard.downloads import attachment
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.key_forms import Choices
from control_plane.dashboard.pages.keys import projects_to_choose
from control_plane.dashboard.pages.refusals.words import (
    CODES,
    Advice,
    Place,
    advice,
    reason_word,
    whose_word,
)
from control_plane.dashboard.pages.usage_links import GROUPING, Narrowed
from control_plane.dashboard.ranges import RangeForm
from control_plane.records.refusals import refusals_csv
from gpu_workers.protocol.refusals import UNKNOWN_MODEL
from inference.errors import InvalidRequest
from inference.models import NewestRefusal
from inference.refusals.reports import (
    Dimension,
    RefusalQuery,
    newest_refusals,
    refusals_by,
    total,
)
from tenants.exports import one_export
from tenants.models import ApiKey, Project
from tenants.permissions import Permission

_MOST_REASONS: Final = 50
_FILTERS: Final = ("project_id", "api_key_id", "model", "code")
_REASON: Final = (Dimension.CODE, Dimension.LIMIT, Dimension.SCOPE)


class RefusalFilters(RangeForm):
    """Named as the API's parameters, so that the address is its call."""

    code = forms.ChoiceField(
        label="Reason", choices=[("", "All"), *((code, reason_word(code)) for code in CODES)]
    )
    project_id = forms.ChoiceField(label="Project")
    api_key_id = forms.UUIDField(
        label="Key id",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    model = forms.CharField(
        label="Model",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    default_days = 7
    behind = ("api_key_id",)
    carried = GROUPING

    def __init__(self, data: Any, *, projects: Choices) -> None:
        super().__init__(data)
        self.fields["project_id"].choices = [("", "All"), *projects]  # type: ignore[attr-defined]

    def asked(self) -> RefusalQuery:
        """Return what the report is narrowed to; a field that is wrong narrows nothing."""
        chosen = self.chosen()
        first, last = self.days()
        narrowed = {name: chosen[name] for name in _FILTERS if name in chosen}
        if "project_id" in narrowed:
            narrowed["project_id"] = uuid.UUID(narrowed["project_id"])
        return RefusalQuery(first=first, last=last, **narrowed)


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A row of the table: why, which limit and whose, how many, and of all how many in 100."""

    code: str
    limit: str
    scope: str
    refusals: int
    of_all: int

    @property
    def word(self) -> str:
        return reason_word(self.code, self.limit)

    @property
    def whose(self) -> str:
        return whose_word(self.scope)

    @property
    def share(self) -> str:
        """Return the percentage; of a few in very many not 0."""
        percent = self.refusals * 100 / self.of_all
        return "< 1" if percent < 1 else f"{percent:.0f}"

    @property
    def filled(self) -> int:
        return max(1, self.refusals * 100 // self.of_all)


@dataclass(frozen=True, kw_only=True)
class Told:
    """One refusal, as it is shown."""

    refusal: NewestRefusal
    key: ApiKey | None
    project: Project | None
    advice: Advice
    address: str
    link: str

    @property
    def model(self) -> str:
        """Return the model's name; "" where it is unknown or was not read."""
        return "" if self.refusal.model == UNKNOWN_MODEL else self.refusal.model


class _FilteredPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    section = "refusals"

    def filters(self) -> RefusalFilters:
        projects = projects_to_choose(self.request.GET.get("project_id"))
        return RefusalFilters(self.request.GET, projects=projects)


class RefusalsPage(_FilteredPage):
    template_name = "dashboard/refusals/list.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = self.filters()
        asked = filters.asked()
        narrowed = _narrowed(asked)
        found = refusals_by(*_REASON, first=asked.first, last=asked.last, **narrowed)
        of_all = sum(row["refusals"] for row in found)
        page = page_of(request, lambda cursor: _newest(asked, narrowed, cursor))
        narrowed_to = Narrowed(days=filters.days(), given=filters.in_force())
        context = {
            "filters": filters,
            "period": f"{asked.first:%-d %b %Y} to {asked.last:%-d %b %Y}, UTC",
            "is_filtered": bool(narrowed),
            "of_all": of_all,
            "before": total(_before(asked, narrowed)),
            "reasons": [Reason(**row, of_all=of_all) for row in found[:_MOST_REASONS]],
            "tabs": narrowed_to.tabs("refusals", self.tenant.id),
            "more_reasons": max(0, len(found) - _MOST_REASONS),
            "page": page,
            "told": _told(self.tenant.id, page.rows),
            "call": _call(self.tenant.id, asked, narrowed),
        }
        return self.show(context, fragment="list")


class RefusalsCsv(_FilteredPage):
    """The report as a file: a row for each day, project, key, model and reason."""

    def get(self, request: HttpRequest) -> HttpResponse:
        asked = self.filters().asked()
        rows = RefusalQuery(
            first=asked.first,
            last=asked.last,
            group_by=(
                Dimension.DAY, Dimension.PROJECT, Dimension.API_KEY, Dimension.MODEL, *_REASON
            ),
            **_narrowed(asked),
        )  # fmt: skip
        with one_export(self.tenant.id):
            content = self._content(asked, rows)
        name = f"refusals-{asked.first}-{asked.last}.csv"
        return attachment(content, name, "text/csv; charset=utf-8")

    def _content(self, asked: RefusalQuery, rows: RefusalQuery) -> bytes:
        try:
            return refusals_csv(rows)
        except InvalidRequest:
            # Days and reasons alone are never too many.
            by_day = RefusalQuery(
                first=asked.first,
                last=asked.last,
                group_by=(Dimension.DAY, *_REASON),
                **_narrowed(asked),
            )
            return refusals_csv(by_day)


def _narrowed(asked: RefusalQuery) -> dict[str, Any]:
    return {name: value for name in _FILTERS if (value := getattr(asked, name)) is not None}


def _before(asked: RefusalQuery, narrowed: dict[str, Any]) -> RefusalQuery:
    """Return the same of as many days before."""
    away = asked.last - asked.first + timedelta(days=1)
    return RefusalQuery(first=asked.first - away, last=asked.last - away, **narrowed)


def _newest(asked: RefusalQuery, narrowed: dict[str, Any], cursor: str | None) -> Any:
    begin = datetime.combine(asked.first, time(), UTC)
    end = datetime.combine(asked.last, time.max, UTC)
    return newest_refusals(limit=ROWS, cursor=cursor, at__gte=begin, at__lte=end, **narrowed)


def _told(tenant_id: uuid.UUID, rows: Sequence[NewestRefusal]) -> list[Told]:
    keys = ApiKey.objects.in_bulk({row.api_key_id for row in rows})
    projects = Project.objects.in_bulk({row.project_id for row in rows})
    return [
        _one(tenant_id, row, keys.get(row.api_key_id), projects.get(row.project_id)) for row in rows
    ]


def _one(
    tenant_id: uuid.UUID, row: NewestRefusal, key: ApiKey | None, project: Project | None
) -> Told:
    what = advice(row.code, row.limit, row.scope, row.status)
    address, link = "", ""
    match what.place:
        case Place.LIMITS:
            address, link = reverse("dashboard:limits", args=[tenant_id]), "Limits"
        case Place.BILLING:
            address, link = reverse("dashboard:billing", args=[tenant_id]), "Billing"
        case Place.KEY if key is not None:
            address, link = reverse("dashboard:key", args=[tenant_id, key.id]), "The key"
        case Place.PROJECT if project is not None:
            address = reverse("dashboard:project", args=[tenant_id, project.id])
            link = "The project's settings"
        case Place.API:
            address, link = "/docs/api", "API reference"
    return Told(refusal=row, key=key, project=project, advice=what, address=address, link=link)


def _call(tenant_id: uuid.UUID, asked: RefusalQuery, narrowed: dict[str, Any]) -> str:
    """Return the call of the API that answers the same table."""
    query = {"from": asked.first, "to": asked.last, "group_by": ",".join(_REASON), **narrowed}
    return report_command(tenant_id, "refusals", query)
