"""/t/<tenant>/usage/labels: whom requests were for, by the labels that projects have chosen to
record; the same as a file."""

import csv
import io
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.curl import report_command
from control_plane.dashboard.downloads import attachment
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.keys import id_in
from control_plane.dashboard.pages.usage_choices import offer_used
from control_plane.dashboard.pages.usage_links import GROUPING, Narrowed
from control_plane.dashboard.ranges import RangeForm
from gpu_workers.protocol.labels import USER
from inference.usage.labels import OTHER, label_names, usage_by_label
from inference.usage.overview import Days
from tenants.access.member_access import MemberAccess
from tenants.access.projects import recorded_labels
from tenants.exports import one_export
from tenants.money import decimal_dollars
from tenants.permissions import Permission
from tenants.spreadsheet import spreadsheet_cell

LISTED: Final = 100
_MOST_IN_FILE: Final = 100_000
_SUMS: Final = ("requests", "prompt_tokens", "completion_tokens", "cost_nanos")


class LabelFilters(RangeForm):
    name = forms.ChoiceField(label="Label")
    project_id = forms.ChoiceField(label="Project")

    carried = GROUPING

    def __init__(self, data: Any, access: MemberAccess) -> None:
        super().__init__(data)
        offer_used(self, access)
        self.full_clean()
        recorded, used = recorded_labels(), label_names(*self.days())
        self.names = sorted({*recorded, *used}, key=lambda name: (name != USER, name))
        self.fields["name"].choices = [(name, name) for name in self.names]  # type: ignore[attr-defined]
        # What is not asked for is shown: what was used, before what has not been yet.
        in_use = [name for name in self.names if name in used]
        if not self.data.get("name"):
            self.data["name"] = next(iter(in_use or self.names), "")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The label and the days that the address asks for, with what it leaves out."""

    form: LabelFilters
    name: str
    days: Days
    project_id: str

    def sums(self) -> Any:
        """Return the values with their sums, the dearest first."""
        found = usage_by_label(
            self.name,
            first=self.days.first,
            last=self.days.last,
            project_id=id_in(self.project_id),
        )
        return found.order_by("-cost_nanos", "-requests", "value")

    def total(self) -> dict[str, int]:
        rows = usage_by_label(
            self.name,
            first=self.days.first,
            last=self.days.last,
            group_by=("name",),
            project_id=id_in(self.project_id),
        )
        found = next(iter(rows), dict.fromkeys(_SUMS, 0))
        return {name: int(found[name]) for name in _SUMS}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A value; `requests_address` is empty for the rest of a day that had too many."""

    value: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost_nanos: int
    share_percent: str
    requests_address: str


class _LabelsPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    section = "usage"

    def asked(self) -> Asked:
        form = LabelFilters(self.request.GET, self.access)
        chosen = form.chosen()
        return Asked(
            form=form,
            name=chosen.get("name", USER),
            days=form.days(),
            project_id=chosen.get("project_id", ""),
        )


class LabelsPage(_LabelsPage):
    template_name = "dashboard/usage/labels.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        asked = self.asked()
        narrowed = Narrowed(days=asked.days, given=asked.form.in_force())
        total = asked.total()
        found = list(asked.sums()[: LISTED + 1])
        query = {"name": asked.name, "from": asked.days.first, "to": asked.days.last}
        if asked.project_id:
            query["project_id"] = asked.project_id
        csv_address = reverse("dashboard:labels-csv", args=[self.tenant.id])
        context = {
            "filters": asked.form,
            "is_recorded": bool(asked.form.names),
            "name": asked.name,
            "rows": [self._row(asked, narrowed, each, total) for each in found[:LISTED]],
            "has_more": len(found) > LISTED,
            "total": total,
            "period": f"{asked.days.first:%-d %b %Y} to {asked.days.last:%-d %b %Y}, UTC",
            "tabs": narrowed.tabs("labels", self.tenant.id),
            "csv": f"{csv_address}?{urlencode(query)}",
            "call": report_command(self.tenant.id, "usage/labels", query),
        }
        return self.show(context, fragment="list")

    def _row(self, asked: Asked, narrowed: Narrowed, sums: Any, total: dict[str, int]) -> Row:
        value, spent = sums["value"], total["cost_nanos"]
        label = "" if value == OTHER else f"{asked.name}:{value}"
        return Row(
            value=value,
            **{name: int(sums[name]) for name in _SUMS},
            share_percent=f"{int(sums['cost_nanos']) * 100 / spent if spent else 0:.1f} %",
            requests_address=narrowed.address("requests", self.tenant.id, label=label)
            if label
            else "",
        )


class LabelsCsv(_LabelsPage):
    """The values of the label that is chosen, all that there are."""

    def get(self, request: HttpRequest) -> HttpResponse:
        asked = self.asked()
        text = io.StringIO()
        writer = csv.writer(text)
        counted = ["requests", "prompt_tokens", "completion_tokens", "cost_dollars"]
        writer.writerow(["from", "to", "name", "value", *counted])
        with one_export(self.tenant.id):
            self._write(writer, asked)
        name = f"labels-{asked.days.first}-{asked.days.last}.csv"
        return attachment(text.getvalue().encode(), name, "text/csv; charset=utf-8")

    def _write(self, writer: Any, asked: Asked) -> None:
        for sums in asked.sums()[:_MOST_IN_FILE].iterator():
            cells = [
                *asked.days,
                asked.name,
                sums["value"],
                *(int(sums[name]) for name in _SUMS[:3]),
                decimal_dollars(int(sums["cost_nanos"]), digits=9),
            ]
            writer.writerow([spreadsheet_cell(cell) for cell in cells])
