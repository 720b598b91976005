"""Drafts: what a month's usage, adjustments and credits come to, as an invoice of each tenant.

A tenant's invoices are a chain: each takes in what came since the one before it, late usage of the
earlier months too, and hands on what is less than a cent. So their periods only ascend. A chunk of
tenants is one transaction, during which no usage is recorded: of what a run was killed in nothing
is there, and the next run makes it.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final

from django.core.exceptions import ValidationError

from tenants.billing.invoicing.least_payable import least_payable_nanos
from tenants.billing.invoicing.ledger_lines import CREDIT_NAMES
from tenants.billing.invoicing.sla_credits import Schedule
from tenants.billing.invoicing.storage import book_storage
from tenants.billing.invoicing.uninvoiced import Uninvoiced, uninvoiced
from tenants.billing.invoicing.usage_source import Attainment, usage_cutoff, usage_source
from tenants.billing.ledger.waiting import post_waiting
from tenants.billing.models import (
    CREDITS,
    AccountName,
    Invoice,
    InvoiceLine,
    LineKind,
    Seller,
)
from tenants.billing.periods import end_of, month_before
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.models import Project, Tenant

_CHUNK: Final = 100

# By tenant and month.
_Attained = defaultdict[tuple[uuid.UUID, date], list[Attainment]]


def last_month(now: datetime | None = None) -> date:
    """Return the first day of the newest month that is over."""
    return month_before((now or datetime.now(UTC)).astimezone(UTC).date().replace(day=1))


def current_seller() -> Seller:
    """Return who invoices now. Raises `ValidationError` if nobody is set."""
    seller = Seller.objects.filter(is_current=True).first()
    if seller is None:
        raise ValidationError(
            "Nobody invoices yet: say who with `manage.py set_seller`, or on the page of sellers.",
            code="no_seller",
        )
    return seller


def draft_invoice(
    tenant: Tenant, period: date, *, now: datetime | None = None, is_last: bool = False
) -> Invoice | None:
    """Draft one tenant's invoice for a month; return None where there is nothing to invoice. Runs
    in an `operator_scope`.

    Raises `Conflict` where its month, or a later one, is invoiced already, and `ValidationError`
    while the month is not over, unless it `is_last`: the tenant is about to be closed.
    """
    now = now or datetime.now(UTC)
    if not is_last:
        _check_over(period, now)
    seller = current_seller()
    schedule = Schedule.read(seller)
    attained = _attained([tenant.id], period, schedule)
    usage_until = usage_cutoff()
    newest = Invoice.objects.newest_of(tenant.id)
    if newest is not None and newest.period >= period:
        raise _conflict(tenant, newest, period)
    drafts = _draft([tenant.id], period, seller, schedule, attained, usage_until, now)
    return drafts[0] if drafts else None


def draft_invoices(period: date, *, now: datetime | None = None) -> int:
    """Draft the month's invoice of every tenant that has none of it or of a later month; return how
    many. Opens a transaction for each chunk of tenants. Raises `ValidationError` while the month is
    not over, or if nobody is set to invoice."""
    now = now or datetime.now(UTC)
    _check_over(period, now)
    with operator_scope("invoices draft"):
        seller = current_seller()
        schedule = Schedule.read(seller)
        tenant_ids = list(Tenant.objects.order_by("id").values_list("id", flat=True))
        # Of all at once and before usage has to stand still: it reads each hour of the month.
        attained = _attained(tenant_ids, period, schedule)
    drafted = 0
    for chunk in _chunks(tenant_ids):
        with operator_scope("invoices draft"):
            usage_until = usage_cutoff()
            taken = Invoice.objects.not_void().filter(tenant__in=chunk, period__gte=period)
            invoiced = set(taken.values_list("tenant_id", flat=True))
            free = [tenant_id for tenant_id in chunk if tenant_id not in invoiced]
            drafted += len(_draft(free, period, seller, schedule, attained, usage_until, now))
    return drafted


def _attained(tenant_ids: Sequence[uuid.UUID], month: date, schedule: Schedule) -> _Attained:
    """Return how a month's promises were kept. Without a schedule of credits nothing is read."""
    found: _Attained = defaultdict(list)
    if schedule.steps and tenant_ids:
        for attained in usage_source().attainment(tenant_ids, month):
            found[attained.tenant_id, month].append(attained)
    return found


def _attained_late(
    found: Mapping[uuid.UUID, Uninvoiced], period: date, schedule: Schedule
) -> _Attained:
    """Return how promises were kept in earlier months, for those who are charged for usage of
    then only now."""
    late: defaultdict[date, list[uuid.UUID]] = defaultdict(list)
    for tenant_id, left in found.items():
        for month in {used.period for used in left.used} - {period}:
            late[month].append(tenant_id)
    attained: _Attained = defaultdict(list)
    for month, tenant_ids in late.items():
        attained |= _attained(tenant_ids, month, schedule)
    return attained


def _check_over(period: date, now: datetime) -> None:
    if end_of(period) > now:
        raise ValidationError(
            f"{period:%Y-%m} is not over; the newest month that can be invoiced is "
            f"{last_month(now):%Y-%m}.",
            code="month_not_over",
            params={"newest": last_month(now)},
        )


def _conflict(tenant: Tenant, newest: Invoice, period: date) -> Conflict:
    found = {"invoice": str(newest), "month": newest.month, "state": newest.state}
    if newest.period > period:
        return Conflict(
            f"{tenant.name} is invoiced for {newest.month} already ({newest}); what is left of "
            f"{period:%Y-%m} comes on its next invoice.",
            code="later_month_invoiced",
            params=found,
        )
    if newest.is_draft:
        return Conflict(
            f"{tenant.name} has a draft for {period:%Y-%m}; discard it to draft it anew.",
            code="draft_exists",
            params=found,
        )
    return Conflict(
        f"{tenant.name} is invoiced for {period:%Y-%m} already: {newest}, {newest.state}.",
        code="month_invoiced",
        params=found,
    )


# From sums to invoices --------------------------------------------------------------------------


def _draft(
    tenant_ids: Sequence[uuid.UUID],
    period: date,
    seller: Seller,
    schedule: Schedule,
    attained: _Attained,
    usage_until: datetime,
    drafted_at: datetime,
) -> list[Invoice]:
    # So that the ledger says what has paid for all usage on record.
    post_waiting(tenant_ids)
    book_storage(tenant_ids, period)
    found = uninvoiced(tenant_ids, period)
    attained = attained | _attained_late(found, period, schedule)
    names = _buyer_names(tenant_ids)
    projects = dict(Project.objects.filter(tenant__in=tenant_ids).values_list("id", "name"))
    invoices, lines = [], []
    for tenant_id in tenant_ids:
        invoice = Invoice(
            tenant_id=tenant_id,
            seller=seller,
            period=period,
            usage_until=usage_until,
            buyer_name=names[tenant_id],
            drafted_at=drafted_at,
        )
        own = _lines(invoice, found[tenant_id], projects)
        own += _sla_lines(invoice, own, schedule, attained)
        for position, line in enumerate(own, 1):
            line.invoice, line.tenant_id, line.position = invoice, tenant_id, position
        if not any(line.amount_nanos or line.granted_nanos for line in own):
            continue
        invoice.add_up(own, least_nanos=least_payable_nanos())
        invoices.append(invoice)
        lines += own
    Invoice.objects.bulk_create(invoices)
    InvoiceLine.objects.bulk_create(lines, batch_size=1000)
    return invoices


def _lines(invoice: Invoice, left: Uninvoiced, projects: dict[uuid.UUID, str]) -> list[InvoiceLine]:
    """Return the lines in the order of the page, all but SLA credits."""
    invoice.brought_forward_nanos = left.before.carried_nanos if left.before else 0
    return [
        *_usage_lines(invoice, left, projects),
        *left.booked,
        *_credit_lines(invoice, left),
    ]


def _usage_lines(
    invoice: Invoice, left: Uninvoiced, projects: dict[uuid.UUID, str]
) -> Iterator[InvoiceLine]:
    swept_to = left.before
    in_order = sorted(
        left.used,
        key=lambda used: (
            used.period < invoice.period,
            used.period,
            projects.get(used.project_id, ""),
            used.model,
            used.tier,
            used.adapter,
        ),
    )
    for used in in_order:
        is_swept = swept_to is not None and used.period <= swept_to.period
        yield InvoiceLine(
            kind=LineKind.USAGE if used.period == invoice.period else LineKind.LATE_USAGE,
            period=used.period,
            project_id=used.project_id,
            project_name=projects.get(used.project_id, ""),
            model=used.model,
            tier=used.tier,
            adapter=used.adapter,
            requests=used.requests,
            prompt_tokens=used.prompt_tokens,
            cached_tokens=used.cached_tokens,
            completion_tokens=used.completion_tokens,
            recorded_after=swept_to.usage_until if is_swept and swept_to else None,
            amount_nanos=used.cost_nanos,
        )


def _credit_lines(invoice: Invoice, left: Uninvoiced) -> Iterator[InvoiceLine]:
    order = {account: place for place, account in enumerate(CREDITS)}
    for (account, month), nanos in sorted(
        left.credit.items(), key=lambda item: (item[0][1], order[item[0][0]])
    ):
        late = "" if month == invoice.period else f", for usage of {month:%Y-%m}"
        yield InvoiceLine(
            kind=LineKind.PAID_BY_CREDIT,
            period=month,
            account=account.value,
            description=f"Paid by {CREDIT_NAMES[account]}{late}",
            amount_nanos=-nanos,
        )


def _sla_lines(
    invoice: Invoice, lines: Sequence[InvoiceLine], schedule: Schedule, attained: _Attained
) -> list[InvoiceLine]:
    """Return the lines of SLA credits, of earlier months as well whose usage is charged only now.
    They lessen what is owed, and nothing further: the rest stays as credit."""
    owed_nanos = sum(line.amount_nanos for line in lines) + invoice.brought_forward_nanos
    charges: defaultdict[date, Counter[tuple[str, str]]] = defaultdict(Counter)
    for line in lines:
        if line.is_usage:
            charges[line.period][line.tier, line.model] += line.amount_nanos
    credited = []
    for month in sorted(charges, reverse=True):
        late = "" if month == invoice.period else f" in {month:%Y-%m}"
        for credit in schedule.credits(attained[invoice.tenant_id, month], charges[month]):
            lessened = min(credit.credit_nanos, max(0, owed_nanos))
            owed_nanos -= lessened
            line = InvoiceLine(
                kind=LineKind.SLA_CREDIT,
                period=month,
                tier=credit.tier,
                model=credit.model,
                account=AccountName.SLA_CREDIT.value,
                promise=credit.promise,
                promised_percent=credit.promised_percent,
                measured_percent=credit.measured_percent,
                credit_percent=credit.credit_percent,
                granted_nanos=credit.credit_nanos,
                description=f"Credit for {credit.model} in tier {credit.tier}: "
                f"{credit.promise.label} not as promised{late}",
                amount_nanos=-lessened,
            )
            credited.append(line)
    return credited


def _buyer_names(tenant_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return the names to invoice under: a closed tenant's is the one on its last invoice."""
    tenants = Tenant.objects.filter(id__in=tenant_ids)
    names = dict(tenants.values_list("id", "name"))
    last = Invoice.objects.filter(tenant__in=tenants.exclude(closed_at=None))
    for tenant_id, name in (
        last.order_by("tenant_id", "-period", "-drafted_at")
        .distinct("tenant_id")
        .values_list("tenant_id", "buyer_name")
    ):
        names[tenant_id] = name
    return names


def _chunks(tenant_ids: Sequence[uuid.UUID]) -> Iterator[Sequence[uuid.UUID]]:
    for start in range(0, len(tenant_ids), _CHUNK):
        yield tenant_ids[start : start + _CHUNK]
