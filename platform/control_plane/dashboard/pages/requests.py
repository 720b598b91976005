"""The log of requests as pages: filters, one request with its time line, the file."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse

from control_plane.curl import report_command
from control_plane.dashboard.downloads import streamed
from control_plane.dashboard.forms import FilterForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.keys import creator_word
from control_plane.dashboard.pages.usage_choices import offer_used
from control_plane.dashboard.pages.usage_links import GROUPING, Narrowed
from control_plane.records.filters import RequestFilter
from control_plane.records.requests import MAX_CSV_ROWS, csv_of
from gpu_workers.protocol.messages import Outcome
from inference.models import UsageRecord
from inference.usage.overview import Days
from inference.usage.request_log import (
    DEFAULT_DAYS,
    REQUESTS_ORDER,
    Step,
    TimelineEntry,
    find_request,
    has_more_requests,
    page_of_requests,
    timeline,
)
from tenants.access.member_access import MemberAccess
from tenants.exports import bounded
from tenants.permissions import Permission

_DAY: Final = {"type": "date"}
_PLAIN: Final = {"autocomplete": "off", "spellcheck": "false"}
_KINDS: Final = {
    Outcome.COMPLETED: "good",
    Outcome.CANCELLED: "plain",
    Outcome.REFUSED: "warn",
    Outcome.EXPIRED: "warn",
    Outcome.FAILED: "bad",
}
# What was typed stays where it is no number.
_NUMERIC: Final = {"inputmode": "numeric"}
_WORDS: Final = {
    Step.ADMITTED: "Admitted and queued",
    Step.STARTED: "Taken by a worker",
    Step.ATTEMPT_ENDED: "Attempt ended early",
    Step.FIRST_TOKEN: "First token",
}


class RequestFilters(FilterForm):
    """The fields of `RequestFilter`, which says what is wrong with their values."""

    since = forms.CharField(label="From (UTC)", widget=forms.DateInput(attrs=_DAY))
    before = forms.CharField(label="Before (UTC)", widget=forms.DateInput(attrs=_DAY))
    outcome = forms.ChoiceField(
        choices=[("", "All"), *((each.value, each.value.capitalize()) for each in Outcome)]
    )
    model = forms.ChoiceField()
    project_id = forms.ChoiceField(label="Project")
    api_key_id = forms.ChoiceField(label="Key")
    created_by_id = forms.ChoiceField(label="Key made by")
    adapter = forms.ChoiceField()
    tier = forms.ChoiceField()
    error_code = forms.CharField(label="Error code", widget=forms.TextInput(attrs=_PLAIN))
    ttft_over_ms = forms.CharField(
        label="First token after (ms)", widget=forms.TextInput(attrs=_NUMERIC)
    )
    duration_over_ms = forms.CharField(
        label="Took more than (ms)", widget=forms.TextInput(attrs=_NUMERIC)
    )
    cost_over = forms.CharField(label="Cost more than ($)", widget=forms.TextInput(attrs=_PLAIN))
    label = forms.CharField(
        label="Label and value",
        widget=forms.TextInput(attrs={**_PLAIN, "placeholder": "user:alice"}),
    )
    request_id = forms.CharField(label="Whole request id", widget=forms.TextInput(attrs=_PLAIN))

    behind = (
        "api_key_id",
        "created_by_id",
        "adapter",
        "tier",
        "error_code",
        "ttft_over_ms",
        "duration_over_ms",
        "cost_over",
        "label",
        "request_id",
    )

    carried = GROUPING

    def __init__(self, data: Any, access: MemberAccess) -> None:
        super().__init__(data)
        offer_used(self, access)

    def found(self) -> RequestFilter:
        """Return the filters without those that are wrong, beside which it is said."""
        given: dict[str, Any] = self.chosen()
        while True:
            wanted = RequestFilter(given, queryset=UsageRecord.objects.all())
            if wanted.is_valid():
                return wanted
            for name, wrong in wanted.errors.items():
                given.pop(name)
                self.add_error(name, wrong)


class RequestsPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    template_name = "dashboard/requests/list.html"
    section = "requests"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = RequestFilters(request.GET, self.access)
        wanted = filters.found()
        order = wanted.order(REQUESTS_ORDER)
        page = page_of(
            request,
            lambda cursor: page_of_requests(wanted.qs, order, limit=ROWS, cursor=cursor),
        )
        context = {
            "filters": filters,
            "is_filtered": bool(wanted.data),
            "days": DEFAULT_DAYS,
            "tabs": _narrowed(filters, wanted).tabs("requests", self.tenant.id),
            "page": page,
            "rows": [Row(record=each) for each in page.rows],
            "chosen": urlencode(wanted.data),
            "call": report_command(self.tenant.id, "requests", wanted.data),
        }
        return self.show(context, fragment="list")


def _narrowed(filters: RequestFilters, wanted: RequestFilter) -> Narrowed:
    """Return what other pages take over: the days that the log is of, the last of them whole."""
    asked, now = wanted.form.cleaned_data, datetime.now(UTC)
    last = min(now, (asked.get("before") or now) - timedelta(microseconds=1)).date()
    first = asked.get("since") or now - timedelta(days=DEFAULT_DAYS - 1)
    return Narrowed(days=Days(min(last, first.date()), last), given=filters.in_force())


class RequestsCsv(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    section = "requests"

    def get(self, request: HttpRequest) -> HttpResponseBase:
        filters = RequestFilters(request.GET, self.access)
        wanted = filters.found()
        is_long = not filters.errors and has_more_requests(wanted.qs, MAX_CSV_ROWS)
        if filters.errors or is_long:
            if is_long:
                most = f"{MAX_CSV_ROWS:,}"
                messages.error(request, f"A file holds up to {most} requests. Choose fewer days.")
            back = reverse("dashboard:requests", args=[self.tenant.id])
            return self.go_to(f"{back}?{request.GET.urlencode()}")
        names_people = self.access.may(Permission.VIEW_PEOPLE)
        found = csv_of(self.tenant.id, wanted.data, names_people=names_people)
        content = bounded(self.tenant.id, found)
        return streamed(content, "requests.csv", "text/csv; charset=utf-8")


class RequestPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    template_name = "dashboard/requests/one.html"
    section = "requests"

    def get(self, request: HttpRequest, request_id: uuid.UUID) -> HttpResponse:
        record = find_request(request_id)
        context = {
            "row": Row(record=record),
            "creator": creator_word(record.api_key, self.access),
            "steps": [_step(each, record) for each in timeline(record)],
            "spans": _spans(record),
            "call": report_command(self.tenant.id, f"requests/{record.request_id}", {}),
        }
        return self.show(context)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A request in words."""

    record: UsageRecord

    @property
    def kind(self) -> str:
        return _KINDS[Outcome(self.record.outcome)]

    @property
    def arrived(self) -> str:
        """Return when it came, to the millisecond."""
        at = self.record.arrived_at.astimezone(UTC)
        return f"{at:%-d %b %Y, %H:%M:%S}.{at.microsecond // 1000:03d} UTC"

    @property
    def new_tokens(self) -> int:
        return self.record.prompt_tokens - self.record.cached_tokens


@dataclass(frozen=True, kw_only=True)
class ShownStep:
    """A step of the time line in words; `kind` is that of a badge."""

    entry: TimelineEntry
    word: str
    kind: str
    note: str


def _step(entry: TimelineEntry, record: UsageRecord) -> ShownStep:
    kind = "warn" if entry.step is Step.ATTEMPT_ENDED else "plain"
    if entry.step is Step.ENDED:
        kind = _KINDS[Outcome(record.outcome)]
    wasted = entry.wasted_tokens
    waste = f"{wasted:,} token{'' if wasted == 1 else 's'} unbilled" if wasted else ""
    reason = entry.reason.replace("_", " ")
    return ShownStep(
        entry=entry,
        word=_WORDS.get(entry.step, record.outcome.capitalize()),
        kind=kind,
        note=", ".join(part for part in (reason, waste) if part),
    )


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of a request's time: `begin` and `width` in thousandths of all."""

    name: str
    word: str
    milliseconds: int
    begin: int
    width: int


def _spans(record: UsageRecord) -> list[Span]:
    """Return what its time went to, in order; nothing where no time passed."""
    whole = record.duration_ms
    if not whole:
        return []
    queued = min(whole if record.queue_ms is None else record.queue_ms, whole)
    first = whole if record.ttft_ms is None else min(max(record.ttft_ms, queued), whole)
    parts = (
        ("queue", "In the queue", 0, queued),
        ("prefill", "Until the first token", queued, first),
        ("decode", "Until the end", first, whole),
    )
    return [
        Span(
            name=name,
            word=word,
            milliseconds=end - begin,
            begin=begin * 1000 // whole,
            width=max(1, end * 1000 // whole - begin * 1000 // whole),
        )
        for name, word, begin, end in parts
        if end > begin
    ]
