"""The audit log, read-only."""

import json
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import (
    AutocompleteSelectFilter,
    DropdownFilter,
    RangeDateTimeFilter,
)
from unfold.decorators import display

from tenants.audit.triggers import audited_models
from tenants.isolation.audit_actor import ActorKind, Verb
from tenants.models import AuditEvent
from tenants.operator_admin import LogAdmin

Lookups = list[tuple[str, str]]


class _WordFilter(DropdownFilter):  # type: ignore[misc]
    """Offer the known values; asking the log for its distinct values would read all of it."""

    def queryset(self, request: HttpRequest, rows: QuerySet[AuditEvent]) -> QuerySet[AuditEvent]:
        return rows.filter(**{self.parameter_name: self.value()}) if self.value() else rows


class VerbFilter(_WordFilter):
    title = "action"
    parameter_name = "verb"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Lookups:
        return [(verb.value, words(verb)) for verb in Verb]


class RecordKindFilter(_WordFilter):
    title = "record type"
    parameter_name = "record_kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Lookups:
        return [(model._meta.label, str(model._meta.verbose_name)) for model in audited_models()]


class ActorKindFilter(_WordFilter):
    title = "actor type"
    parameter_name = "actor_kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Lookups:
        return [(kind.value, words(kind)) for kind in ActorKind]


@admin.register(AuditEvent)
class AuditEventAdmin(LogAdmin):
    list_display = ["at", "who", "what", "record", "changed", "tenant", "address"]
    list_display_links = ["at"]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        VerbFilter,
        RecordKindFilter,
        ActorKindFilter,
        ("at", RangeDateTimeFilter),
    ]
    # What people paste: an id, or a person's exact name or address.
    search_fields = [
        "record_id__exact",
        "actor_id__exact",
        "personal__actor_name__exact",
        "personal__record_name__exact",
        "personal__address__exact",
    ]
    search_help_text = "Exact id, name or IP address"
    list_select_related = ["tenant", "personal"]
    ordering = ["-at", "-sequence"]
    fieldsets = [
        (None, {"fields": ["at", "who", "address", "what", "record_link", "tenant"]}),
        ("Changes", {"fields": ["changes_table"]}),
        ("Hash chain", {"fields": ["sequence", "hash_text", "previous_hash_text"]}),
    ]

    @admin.display(description="actor")
    def who(self, event: AuditEvent) -> str:
        return actor_of(event)

    @admin.display(description="IP address")
    def address(self, event: AuditEvent) -> str:
        return event.personal.address if _has_names(event) else "(erased)"

    @display(
        description="action",
        label={
            "created": "success",
            "deleted": "danger",
            "revoked": "danger",
            "closed": "danger",
            "suspended": "warning",
            "sign in failed": "warning",
        },
    )
    def what(self, event: AuditEvent) -> str:
        return words(event.verb)

    @admin.display(description="record")
    def record(self, event: AuditEvent) -> str:
        return record_of(event)

    @admin.display(description="changed fields")
    def changed(self, event: AuditEvent) -> str:
        names = list(json.loads(event.changes))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more

    @admin.display(description="record")
    def record_link(self, event: AuditEvent) -> str | SafeString:
        text = f"{event.record_kind} {event.record_id}".strip()
        page = "admin:{}_change".format(event.record_kind.lower().replace(".", "_"))
        try:
            link = reverse(page, args=[event.record_id])
        except NoReverseMatch:
            return text
        return format_html(
            '<a class="long-words text-primary-600 dark:text-primary-500" href="{}">{}</a>',
            link,
            text,
        )

    @admin.display(description="changed fields")
    def changes_table(self, event: AuditEvent) -> SafeString:
        rows = format_html_join("", _ROW, (_cells(event.changed_fields)))
        return format_html('<table class="w-full text-left">{}{}</table>', _HEAD, rows)

    @admin.display(description="hash")
    def hash_text(self, event: AuditEvent) -> SafeString:
        return _hexadecimal(event.hash)

    @admin.display(description="previous hash")
    def previous_hash_text(self, event: AuditEvent) -> SafeString:
        return _hexadecimal(event.previous_hash)


_HEAD = SafeString('<tr><th class="pr-4">Field</th><th class="pr-4">Before</th><th>After</th></tr>')
_ROW = (
    '<tr><td class="long-words pr-4">{}</td><td class="long-words pr-4">{}</td>'
    '<td class="long-words">{}</td></tr>'
)


def _cells(fields: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    for name, change in fields.items():
        if isinstance(change, list) and len(change) == 2:
            yield name, _text(change[0]), _text(change[1])
        elif change == "personal":
            yield name, "(erased)", "(erased)"
        else:
            yield name, "", _text(change)


def _hexadecimal(digest: bytes | memoryview) -> SafeString:
    return format_html('<span class="long-words font-mono">{}</span>', bytes(digest).hex())


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _has_names(event: AuditEvent) -> bool:
    return hasattr(event, "personal")


def actor_of(event: AuditEvent) -> str:
    """Name who did it; read with `personal`."""
    name = event.personal.actor_name if _has_names(event) else ""
    return name or f"{words(event.actor_kind)} {event.actor_id}".strip()


def record_of(event: AuditEvent) -> str:
    """Name what it was done to; read with `personal`."""
    kind = event.record_kind.rpartition(".")[2]
    name = event.personal.record_name if _has_names(event) else event.record_id
    return f"{kind} {name or event.record_id}".strip()


def words(text: str) -> str:
    """Return a value of the log as people read it."""
    return str(text).replace("_", " ")
