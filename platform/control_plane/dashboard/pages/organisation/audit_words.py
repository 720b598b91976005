"""Events of the audit log in words, and as rows of a file."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.utils.text import Truncator

from control_plane.web.figures import short_dollars
from tenants.isolation.audit_actor import ActorKind, Verb
from tenants.models import AuditEvent
from tenants.spreadsheet import spreadsheet_cell

RECORDS: Final[dict[str, str]] = {
    "inference.Adapter": "adapter",
    "inference.AdapterVersion": "adapter version",
    "tenants.ApiKey": "API key",
    "webhooks.BalanceAlert": "balance alert",
    "tenants.Invitation": "invitation",
    "billing.Invoice": "invoice",
    "tenants.Quota": "limit",
    "tenants.MailDomain": "mail domain",
    "tenants.Membership": "member",
    "tenants.Tenant": "organisation",
    "billing.Payment": "payment",
    "tenants.Project": "project",
    "tenants.SavedView": "saved view",
    "tenants.User": "account",
    "tenants.SignOnConfiguration": "single sign-on",
    "tenants.SignOnIdentity": "sign-on identity",
    "webhooks.Endpoint": "webhook",
}
_ACTORS: Final[dict[str, str]] = {
    ActorKind.USER: "a former member",
    ActorKind.API_KEY: "an API key",
    ActorKind.COMMAND: "the operator of this service",
    ActorKind.JOB: "the service itself",
    ActorKind.UNKNOWN: "unknown",
}
_OF_RECORDS: Final = frozenset({Verb.CREATED, Verb.CHANGED, Verb.DELETED})
# Where the verb of a whole transaction is no word for one of its records.
_VERBS: Final = {("billing.Payment", "paid"): "recorded"}
_COLUMNS: Final = (
    "time",
    "actor_kind",
    "actor",
    "actor_id",
    "address",
    "action",
    "record_kind",
    "record",
    "record_id",
    "changes",
    "sequence",
    "hash",
)
# Of a change, in the list.
_FIELDS_SHOWN: Final = 3
_LETTERS_SHOWN: Final = 40
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CHANGED: Final = "changed"
_PERSONAL: Final = "personal"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A field, before and after; "" is nothing. `note` stands for both where they are not told."""

    field: str
    before: str = ""
    after: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class EventInWords:
    """`address` is "" where it is not known, or was erased."""

    event: AuditEvent
    who: str
    address: str
    action: str
    record_kind: str
    record: str

    @property
    def changes(self) -> list[Change]:
        return [_change(name, value) for name, value in self.event.changed_fields.items()]

    @property
    def summary(self) -> str:
        """Return what a change has changed, the first fields of it; "" of what is no change."""
        if self.event.verb != Verb.CHANGED:
            return ""
        changes = self.changes
        shown = ", ".join(_in_short(each) for each in changes[:_FIELDS_SHOWN])
        rest = len(changes) - _FIELDS_SHOWN
        return f"{shown} and {rest} more" if rest > 0 else shown


def in_words(event: AuditEvent) -> EventInWords:
    personal = getattr(event, "personal", None)
    name = "" if personal is None else personal.actor_name
    return EventInWords(
        event=event,
        who=name or _ACTORS.get(event.actor_kind, event.actor_kind),
        address="" if personal is None else personal.address,
        action=_VERBS.get((event.record_kind, event.verb)) or verb_word(event.verb),
        record_kind="" if _is_of_oneself(event) else record_word(event.record_kind),
        record="" if personal is None else personal.record_name,
    )


def _is_of_oneself(event: AuditEvent) -> bool:
    """Return whether the verb says all: whoever signs in does nothing to an account."""
    return event.record_kind == "tenants.User" and event.verb not in _OF_RECORDS


def verb_word(verb: str | Verb) -> str:
    return str(verb).replace("_", " ")


def record_word(kind: str) -> str:
    """Return what people call a kind of record: `tenants.ApiKey` is an API key."""
    return RECORDS.get(kind) or _CAMEL.sub(" ", kind.rpartition(".")[2]).lower()


def csv_heading() -> bytes:
    return _table([_COLUMNS])


def csv_rows(events: Iterable[AuditEvent]) -> bytes:
    return _table(map(_cells, events))


def _cells(event: AuditEvent) -> Iterator[object]:
    words = in_words(event)
    cells = (
        event.at.isoformat(),
        event.actor_kind,
        words.who,
        event.actor_id,
        words.address,
        event.verb,
        event.record_kind,
        words.record,
        event.record_id,
        json.dumps(event.changed_fields, ensure_ascii=False),
        event.sequence,
        bytes(event.hash).hex(),
    )
    return map(spreadsheet_cell, cells)


def _table(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _in_short(change: Change) -> str:
    if change.note:
        return change.field
    before, after = (
        Truncator(text).chars(_LETTERS_SHOWN) for text in (change.before, change.after)
    )
    return f"{change.field}: {before or 'none'} → {after or 'none'}"


def _change(name: str, value: Any) -> Change:
    field = name.removesuffix("_id").removesuffix("_nanos").replace("_", " ")
    if isinstance(value, list) and len(value) == 2:
        before, after = (_text(name, each) for each in value)
        return Change(field=field, before=before, after=after)
    if value == _CHANGED:
        return Change(field=field, note="changed; its value is not kept")
    if value == _PERSONAL:
        return Change(field=field, note="changed; its value was erased")
    return Change(field=field, after=_text(name, value))


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_nanos"):
        return short_dollars(value)
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
