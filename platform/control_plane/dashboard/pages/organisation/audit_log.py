"""The audit log: who did what to which record, from where, with filters and as a file."""

import uuid
from collections.abc import AsyncGenerator
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse

from control_plane.dashboard.downloads import streamed
from control_plane.dashboard.forms import FilterForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.organisation.audit_words import (
    RECORDS,
    csv_heading,
    csv_rows,
    in_words,
    record_word,
    verb_word,
)
from control_plane.web.figures import short_id
from tenants.access.people import list_members
from tenants.audit.lists import find_event, has_more_events, list_events
from tenants.audit.log import record
from tenants.errors import NotPermitted
from tenants.exports import bounded, read_part
from tenants.isolation.audit_actor import Verb
from tenants.isolation.scoping import tenant_scope
from tenants.permissions import Permission

# Of the people to choose from, and of the file's events; who has more narrows the days.
_MOST_PEOPLE: Final = 500
MOST_EVENTS: Final = 100_000
EVENTS_AT_ONCE: Final = 1000
_DAY: Final = {"type": "date"}


class AuditFilters(FilterForm):
    actor = forms.ChoiceField(label="Who")
    verb = forms.TypedChoiceField(
        label="Action",
        choices=[("", "All"), *((verb.value, verb_word(verb)) for verb in Verb)],
        coerce=Verb,
    )
    kind = forms.ChoiceField(label="Kind of record")
    record = forms.CharField(
        label="Record id",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    since = forms.DateField(label="From (UTC)", widget=forms.DateInput(attrs=_DAY))
    until = forms.DateField(label="To (UTC)", widget=forms.DateInput(attrs=_DAY))

    def __init__(self, data: Any, *, people: list[tuple[str, str]]) -> None:
        super().__init__(data)
        kinds = [("", "All"), *RECORDS.items()]
        # A link may name somebody who has left, or a kind that is rare.
        for field, choices, word in (
            ("actor", [("", "Everybody"), *people], short_id),
            ("kind", kinds, record_word),
        ):
            asked = self.data.get(field, "")[:200]
            if asked.isprintable() and asked and asked not in dict(choices):
                choices.append((asked, word(asked)))
            self.fields[field].choices = choices  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        since, until = cleaned.get("since"), cleaned.get("until")
        if since and until and since > until:
            raise ValidationError({"until": "This is before the day it begins with."})
        return cleaned


class _FilteredPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_AUDIT}
    section = "audit"

    def filters(self) -> AuditFilters:
        people: list[tuple[str, str]] = []
        if self.access.may(Permission.VIEW_PEOPLE):
            members = list_members(limit=_MOST_PEOPLE).rows
            people = sorted((each.user.email, str(each.user_id)) for each in members)
        return AuditFilters(self.request.GET, people=[(key, email) for email, key in people])


class AuditPage(_FilteredPage):
    template_name = "dashboard/audit/list.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = self.filters()
        chosen = filters.chosen()
        page = page_of(request, lambda cursor: list_events(**chosen, limit=ROWS, cursor=cursor))
        context = {
            "filters": filters,
            "is_filtered": bool(chosen),
            "page": page,
            "rows": [in_words(event) for event in page.rows],
            "may_export": self.access.may(Permission.EXPORT),
        }
        return self.show(context, fragment="list")


class AuditEventPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_AUDIT}
    template_name = "dashboard/audit/one.html"
    section = "audit"

    def get(self, request: HttpRequest, event_id: uuid.UUID) -> HttpResponse:
        event = find_event(event_id)
        return self.show({"row": in_words(event), "hash": bytes(event.hash).hex()})


class AuditCsv(_FilteredPage):
    """The events that are filtered, as a file, which the log itself tells of."""

    def get(self, request: HttpRequest) -> HttpResponseBase:
        try:
            self.access.check(Permission.EXPORT, is_change=False)
        except NotPermitted as refusal:
            return self._refused(Permission.EXPORT, refusal)
        filters = self.filters()
        chosen = filters.chosen()
        if filters.errors or has_more_events(MOST_EVENTS, **chosen):
            if not filters.errors:
                most = f"{MOST_EVENTS:,}"
                messages.error(request, f"A file holds up to {most} events. Choose fewer days.")
            back = reverse("dashboard:audit", args=[self.tenant.id])
            return self.go_to(f"{back}?{request.GET.urlencode()}")
        record(Verb.EXPORTED, self.tenant, tenant_id=self.tenant.id, what="audit log")
        lines = bounded(self.tenant.id, _lines(self.tenant.id, chosen))
        return streamed(lines, "audit-log.csv", "text/csv; charset=utf-8")


async def _lines(tenant_id: uuid.UUID, chosen: dict[str, Any]) -> AsyncGenerator[bytes]:
    """Yield the file. Each part is a transaction of its own: a reader who is slow holds none."""
    yield csv_heading()
    cursor: str | None = None
    while True:
        part, cursor = await read_part(_part, tenant_id, chosen, cursor)
        yield part
        if cursor is None:
            return


def _part(
    tenant_id: uuid.UUID, chosen: dict[str, Any], cursor: str | None
) -> tuple[bytes, str | None]:
    with tenant_scope(tenant_id):
        events = list_events(**chosen, limit=EVENTS_AT_ONCE, cursor=cursor)
        return csv_rows(events.rows), events.next_cursor
