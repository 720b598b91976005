"""What operators see of a tenant before its fields: money, limits with their use, keys, the latest
requests and what was changed last. Each panel is for who may see its records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar
from urllib.parse import urlencode

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst

from control_plane.records.limit_rows import rows_of
from control_plane.web.figures import exact, relative
from inference.models import UsageRecord
from tenants.admin.audit import actor_of, record_of, words
from tenants.admin.bookings import BOOKINGS
from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import Invoice, LedgerTransaction
from tenants.models import ApiKey, AuditEvent, Quota, Tenant
from tenants.money import dollars, dollars_and_cents
from tenants.operator_admin import MAY_BOOK, list_address, page_address

MOST_ROWS: Final = 5
_Row = TypeVar("_Row", bound=Model)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """`title` is what a pointer that rests on it is told."""

    text: str
    link: str = ""
    title: str = ""
    is_number: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A table of the newest, with `link` to all of them; `text` is above it, `verbs` are what can
    be done there, as label and address."""

    title: str
    link: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    text: str = ""
    verbs: tuple[tuple[str, str], ...] = ()


def overview_of(tenant: Tenant, request: HttpRequest) -> list[Panel]:
    """Return the panels that whoever asks may see."""
    panels: tuple[tuple[str, Callable[[Tenant], Panel]], ...] = (
        ("billing.view_ledgertransaction", lambda tenant: _money(tenant, request)),
        ("tenants.view_quota", _limits),
        ("tenants.view_apikey", _keys),
        ("inference.view_usagerecord", _requests),
        ("tenants.view_auditevent", _changes),
    )
    return [panel(tenant) for permission, panel in panels if request.user.has_perm(permission)]


def _money(tenant: Tenant, request: HttpRequest) -> Panel:
    held, pays = balance_of(tenant.pk), tenant.get_billing_mode_display()
    verbs = []
    if request.user.has_perm(MAY_BOOK):
        verbs = [
            (booking.label, reverse("admin:tenants_tenant_money", args=[tenant.pk, verb]))
            for verb, booking in BOOKINGS.items()
        ]
        verbs.append(("Re-rate", reverse("admin:rerate", args=[tenant.pk])))
    if request.user.has_perm("tenants.change_tenant") and not tenant.is_closed:
        verbs.append(
            ("Billing mode", reverse("admin:tenants_tenant_billing_mode", args=[tenant.pk]))
        )
    invoices = _newest(Invoice.objects.filter(tenant=tenant), "-period", "-drafted_at")
    return Panel(
        title="Money",
        text=f"{capfirst(pays)}. Credit {dollars(held.credit_nanos)}: promotional "
        f"{dollars(held.promotional_nanos)}, for missed promises {dollars(held.sla_nanos)}, "
        f"prepaid {dollars(held.prepaid_nanos)}. Owed {dollars(held.owed_nanos)}.",
        verbs=(*verbs, ("Transactions", _list(LedgerTransaction, tenant))),
        link=_list(Invoice, tenant),
        columns=_columns("Invoice", "Month", "State", "[Amount due]"),
        rows=tuple(
            (
                Cell(text=each.number or "draft", link=page_address(each)),
                Cell(text=f"{each.period:%B %Y}"),
                Cell(text="overdue" if each.is_overdue else each.state),
                Cell(text=dollars_and_cents(each.payable_nanos), is_number=True),
            )
            for each in invoices
        ),
        empty="No invoices.",
    )


def _limits(tenant: Tenant) -> Panel:
    quotas = Quota.objects.filter(tenant=tenant).select_related("project", "api_key__project")
    rows = rows_of(tenant, list(_newest(quotas, "project", "api_key", "limit", "pk")))
    return Panel(
        title="Quotas",
        text=f"Beside the limits of the tier {tenant.tier}.",
        link=_list(Quota, tenant),
        columns=_columns("Quota", "Of", "[Used]", "[Share]"),
        rows=tuple(
            (
                Cell(text=row.name, link="" if row.quota is None else page_address(row.quota)),
                Cell(text=row.place),
                Cell(text="unknown" if row.used is None else row.exact, is_number=True),
                Cell(text="–" if row.percent is None else f"{row.percent}%", is_number=True),
            )
            for row in rows
        ),
        empty="No quotas.",
    )


def _keys(tenant: Tenant) -> Panel:
    active = ApiKey.objects.filter(tenant=tenant, revoked_at=None).select_related("project")
    count = active.count()
    return Panel(
        title="API keys",
        text=f"{count:,} active.",
        link=_list(ApiKey, tenant),
        columns=_columns("Key", "Name", "Project", "Last used"),
        rows=tuple(
            (
                Cell(text=each.masked, link=page_address(each)),
                Cell(text=each.name),
                Cell(text=each.project.name),
                _moment(each.last_used_at),
            )
            for each in _newest(active, "-created_at")
        ),
        empty="No active keys.",
    )


def _requests(tenant: Tenant) -> Panel:
    newest = _newest(UsageRecord.objects.filter(tenant=tenant), "-request_id")
    return Panel(
        title="Latest requests",
        link=_list(UsageRecord, tenant),
        columns=_columns("Request", "Model", "Outcome", "[Tokens]", "[Cost]"),
        rows=tuple(
            (
                Cell(
                    text=relative(each.arrived_at),
                    link=page_address(each),
                    title=f"{each.request_id}, {exact(each.arrived_at)}",
                ),
                Cell(text=each.model),
                Cell(text=each.outcome),
                Cell(text=f"{each.prompt_tokens + each.completion_tokens:,}", is_number=True),
                Cell(text=dollars(each.cost_nanos), is_number=True),
            )
            for each in newest
        ),
        empty="No requests.",
    )


def _changes(tenant: Tenant) -> Panel:
    events = AuditEvent.objects.filter(tenant=tenant).select_related("personal")
    return Panel(
        title="Latest changes",
        link=_list(AuditEvent, tenant),
        columns=_columns("When", "Who", "What"),
        rows=tuple(
            (
                Cell(
                    text=relative(each.at),
                    link=page_address(each),
                    title=exact(each.at),
                ),
                Cell(text=actor_of(each)),
                Cell(text=f"{words(each.verb)} {record_of(each)}"),
            )
            for each in _newest(events, "-sequence")
        ),
        empty="No changes.",
    )


def _newest(rows: "QuerySet[_Row]", *order: str) -> Iterator[_Row]:
    yield from rows.order_by(*order)[:MOST_ROWS]


def _columns(*names: str) -> tuple[Cell, ...]:
    """Return the head of a table; a name in brackets is of a column of numbers."""
    return tuple(Cell(text=name.strip("[]"), is_number=name.startswith("[")) for name in names)


def _moment(moment: datetime | None) -> Cell:
    return (
        Cell(text="never") if moment is None else Cell(text=relative(moment), title=exact(moment))
    )


def _list(model: type[Model], tenant: Tenant) -> str:
    return f"{list_address(model)}?{urlencode({'tenant__id__exact': tenant.pk})}"
