"""For fsck: numbers, sums, usage, ledger and payments of the invoices."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, F, Max, Min, Sum
from django.utils import timezone

from tenants.billing.invoicing.invoices import payment_reference, sla_reference
from tenants.billing.invoicing.sla_holds import hold_problems
from tenants.billing.invoicing.uninvoiced import LATE_MONTHS
from tenants.billing.invoicing.usage_source import UsageGroup as Group
from tenants.billing.invoicing.usage_source import usage_source
from tenants.billing.models import (
    Invoice,
    InvoiceCounter,
    InvoiceLine,
    InvoiceState,
    LedgerTransaction,
    LineKind,
    Payment,
    Seller,
    SlaDecision,
    TransactionKind,
)
from tenants.billing.periods import last_day, months_before

_CHUNK = 200
_MONTH_END_EVERY = timedelta(days=1)
_USAGE = (LineKind.USAGE, LineKind.LATE_USAGE)


def number_problems() -> Iterator[str]:
    """Report gaps: each year's numbers run from 1 to the last that was given."""
    counters = {(row.seller_id, row.year): row for row in InvoiceCounter.objects.all()}
    issued = (
        Invoice.objects.exclude(sequence=None)
        .order_by()
        .values_list("seller_id", "year")
        .annotate(lowest=Min("sequence"), highest=Max("sequence"), count=Count("id"))
    )
    for seller_id, year, lowest, highest, count in issued:
        counter = counters.pop((seller_id, year), None)
        last = counter.last if counter else 0
        if (lowest, highest, count) != (1, last, last):
            yield (
                f"{count} invoices of {year} have the numbers {lowest} to {highest}; "
                f"expected 1 to {last}, as the counter of seller {seller_id} says."
            )
    for (seller_id, year), counter in counters.items():
        if counter.last:
            yield f"Seller {seller_id} gave {counter.last} numbers in {year}; no invoice has one."


def sum_problems() -> Iterator[str]:
    """Report invoices whose lines do not add up, or whose remainder is not brought forward on the
    tenant's next one."""
    wrong: Any = (
        Invoice.objects.annotate(total=Sum("lines__amount_nanos", default=0))
        .exclude(total=F("due_nanos"))
        .order_by("id")
    )
    for invoice in wrong.iterator(chunk_size=1000):
        yield (
            f"The lines of invoice {invoice.id} ({invoice}) come to {invoice.total} nano-dollars, "
            f"expected {invoice.due_nanos}."
        )
    carried: dict[uuid.UUID, int] = {}
    chain = Invoice.objects.not_void().order_by("tenant_id", "period")
    for invoice in chain.iterator(chunk_size=1000):
        expected = carried.get(invoice.tenant_id, 0)
        if invoice.brought_forward_nanos != expected:
            yield (
                f"Invoice {invoice.id} ({invoice}) brings forward {invoice.brought_forward_nanos} "
                f"nano-dollars, the one before it carries {expected}."
            )
        carried[invoice.tenant_id] = invoice.carried_nanos


def usage_problems() -> Iterator[str]:
    """Report differences between what standing invoices charge for usage and what the usage cost
    that was recorded until the newest of them, by tenant, month, project, model, tier and adapter;
    and between the ledger's revenue and all usage, late or not, by month and model."""
    newest = {
        invoice.tenant_id: invoice
        for invoice in Invoice.objects.not_void()
        .order_by("tenant_id", "-period")
        .distinct("tenant_id")
        .iterator(chunk_size=1000)
    }
    tenant_ids = list(newest)
    for start in range(0, len(tenant_ids), _CHUNK):
        chunk = tenant_ids[start : start + _CHUNK]
        charged = _charged(chunk)
        months = [line.period for line in charged]
        months += [months_before(newest[each].period, LATE_MONTHS) for each in chunk]
        used = _used(chunk, min(months), newest)
        yield from _charge_problems(charged, used, newest)
        yield from _revenue_problems(chunk, min(months), used, newest)


def _charge_problems(
    charged: dict[Group, int], used: dict[Group, int], newest: dict[uuid.UUID, Invoice]
) -> Iterator[str]:
    for group in sorted(charged.keys() | used.keys(), key=str):
        invoice = newest[group.tenant_id]
        is_forgotten = group.period < months_before(invoice.period, LATE_MONTHS)
        if group.period > invoice.period or (is_forgotten and group not in charged):
            continue
        on_invoices = charged.get(group, 0)
        late = used.get(group, 0) - on_invoices
        if late:
            late -= usage_source().cost_recorded_after(group, invoice.usage_until)
        if late:
            yield (
                f"Tenant {group.tenant_id} used {group.model} in {group.period:%Y-%m} (project "
                f"{group.project_id}, tier {group.tier}, adapter {group.adapter or 'none'}) for "
                f"{on_invoices + late} nano-dollars until its newest invoice; its invoices charge "
                f"{on_invoices}."
            )


def _revenue_problems(
    tenant_ids: list[uuid.UUID],
    first: date,
    used: dict[Group, int],
    newest: dict[uuid.UUID, Invoice],
) -> Iterator[str]:
    cost: defaultdict[tuple[uuid.UUID, date, str], int] = defaultdict(int)
    for group, nanos in used.items():
        cost[group.tenant_id, group.period, group.model] += nanos
    revenue = _revenue(tenant_ids, first)
    for key in sorted(cost.keys() | revenue.keys(), key=str):
        tenant_id, month, model = key
        booked, expected = revenue.get(key, 0), cost.get(key, 0)
        if month <= newest[tenant_id].period and booked != expected:
            yield (
                f"Tenant {tenant_id} used {model} in {month:%Y-%m} for {expected} nano-dollars; "
                f"its ledger has {booked} of revenue."
            )


def posting_problems() -> Iterator[str]:
    """Report what invoices move in the ledger and is not posted there once, with the same
    amount."""
    expected: dict[tuple[uuid.UUID, str], int] = {}
    of_credit: Any = (
        Invoice.objects.exclude(state=InvoiceState.DRAFT)
        .filter(lines__kind=LineKind.SLA_CREDIT)
        .annotate(granted=Sum("lines__granted_nanos"))
        .order_by("id")
    )
    for invoice in of_credit:
        expected[invoice.tenant_id, sla_reference(invoice)] = invoice.granted
        if invoice.state == InvoiceState.VOID:
            expected[invoice.tenant_id, sla_reference(invoice, is_reversed=True)] = invoice.granted
    asking: Any = Invoice.objects.exclude(state=InvoiceState.DRAFT).filter(payable_nanos__gt=0)
    paid = asking.annotate(paid_nanos=Sum("payments__amount_nanos", default=0))
    for invoice in paid.order_by("id").iterator(chunk_size=1000):
        is_paid = invoice.state == InvoiceState.PAID
        if is_paid != (invoice.paid_nanos == invoice.payable_nanos):
            yield (
                f"Invoice {invoice} is {invoice.state} and asked for {invoice.payable_nanos} "
                f"nano-dollars, its payments are {invoice.paid_nanos}."
            )
    booked = Payment.objects.filter(ledger_transaction_id=None).select_related("invoice")
    for payment in booked.order_by("id").iterator(chunk_size=1000):
        expected[payment.tenant_id, payment_reference(payment)] = payment.amount_nanos
    posted = _posted()
    for key in sorted(expected.keys() | posted.keys(), key=str):
        wanted, found = expected.get(key, 0), posted.get(key, 0)
        if wanted != found:
            yield (
                f"The ledger of tenant {key[0]} has {found} nano-dollars under {key[1]!r}, "
                f"expected {wanted}."
            )


def booked_problems() -> Iterator[str]:
    """Report differences between the ledger's transactions that invoices show and what these
    changed of what is owed or was written off, beside what invoices asked for."""
    with connection.cursor() as cursor:
        cursor.execute(_TOLD, [])
        for tenant_id, transaction_id, told, expected in cursor.fetchall():
            if told != expected:
                yield (
                    f"Invoices of tenant {tenant_id} show ledger transaction {transaction_id} with "
                    f"{told} nano-dollars, expected {expected}."
                )


# Lines by the transaction that they show; SLA credits by that of their invoice.
_TOLD = """
WITH told AS (
    SELECT line.tenant_id, posted.id, sum(line.amount_nanos) AS nanos
    FROM billing_invoiceline AS line
    JOIN billing_invoice AS invoice
        ON invoice.id = line.invoice_id AND invoice.state NOT IN ('draft', 'void')
    JOIN billing_ledgertransaction AS posted ON posted.tenant_id = line.tenant_id
        AND posted.reference = 'invoice:' || invoice.id || ':sla'
    WHERE line.kind = 'sla_credit' GROUP BY line.tenant_id, posted.id
    UNION ALL
    SELECT line.tenant_id, line.ledger_transaction_id, sum(line.amount_nanos)
    FROM billing_invoiceline AS line
    JOIN billing_invoice AS invoice ON invoice.id = line.invoice_id AND invoice.state <> 'void'
    WHERE line.ledger_transaction_id IS NOT NULL
    GROUP BY line.tenant_id, line.ledger_transaction_id
)
SELECT told.tenant_id, told.id, told.nanos, coalesce(moved.owed, 0) + CASE
    WHEN posted.kind = 'payment' AND posted.reference LIKE 'invoice:%%' THEN moved.cash
    ELSE coalesce((
        SELECT sum(amount_nanos) FROM billing_payment WHERE ledger_transaction_id = told.id), 0)
    END
FROM told LEFT JOIN billing_ledgertransaction AS posted ON posted.id = told.id
CROSS JOIN LATERAL (
    SELECT sum(nanos) FILTER (WHERE account IN ('receivable', 'bad_debt')) AS owed,
        sum(nanos) FILTER (WHERE account = 'cash') AS cash
    FROM billing_ledgerentry WHERE transaction_id = told.id
) AS moved
ORDER BY told.tenant_id, told.id
"""


def account_problems() -> Iterator[str]:
    """Report payments said to be booked on account before that the ledger has not, or with another
    amount."""
    paid: Any = Payment.objects.filter(ledger_transaction_id__isnull=False)
    for payment in paid.select_related("invoice").order_by("recorded_at", "id"):
        booked = LedgerTransaction.objects.filter(
            id=payment.ledger_transaction_id,
            tenant=payment.tenant_id,
            kind=TransactionKind.PAYMENT,
        ).first()
        if booked is None or booked.size_nanos < payment.amount_nanos:
            yield (
                f"The payment {payment} of invoice {payment.invoice} is of "
                f"{payment.amount_nanos} nano-dollars, the ledger has "
                f"{booked.size_nanos if booked else 0} of it on account."
            )


def draft_problems() -> Iterator[str]:
    """Report drafts that month end should have issued: it said why not, or never came to them."""
    seller = Seller.objects.filter(is_current=True).first()
    review_days = 0 if seller is None else seller.review_days
    drafts = Invoice.objects.filter(state=InvoiceState.DRAFT)
    for draft in drafts.exclude(sla_review__decision=SlaDecision.HELD).order_by("period", "id"):
        name = f"Draft {draft.id} of {draft.month}, tenant {draft.tenant_id},"
        if draft.blocked_reason:
            yield f"{name} could not be issued: {draft.blocked_reason}"
        elif review_days is not None:
            ripe_at = draft.drafted_at + timedelta(review_days)
            if timezone.now() > ripe_at + _MONTH_END_EVERY * 2:
                yield f"{name} should have been issued by itself from {ripe_at:%Y-%m-%d} on."


def invoice_problems() -> Iterable[str]:
    yield from number_problems()
    yield from sum_problems()
    yield from posting_problems()
    yield from booked_problems()
    yield from account_problems()
    yield from draft_problems()
    yield from hold_problems()
    yield from usage_problems()


# Sums --------------------------------------------------------------------------------------------


def _charged(tenant_ids: list[uuid.UUID]) -> dict[Group, int]:
    rows = (
        InvoiceLine.objects.filter(tenant__in=tenant_ids, kind__in=_USAGE)
        .exclude(invoice__state=InvoiceState.VOID)
        .order_by()
        .values_list("tenant_id", "period", "project_id", "model", "tier", "adapter")
        .annotate(Sum("amount_nanos"))
    )
    return {Group(*group): nanos for *group, nanos in rows}


def _used(
    tenant_ids: list[uuid.UUID], first: date, newest: dict[uuid.UUID, Invoice]
) -> dict[Group, int]:
    last = last_day(max(newest[tenant_id].period for tenant_id in tenant_ids))
    return {line.group: line.cost_nanos for line in usage_source().lines(tenant_ids, first, last)}


def _revenue(tenant_ids: list[uuid.UUID], first: date) -> dict[tuple[uuid.UUID, date, str], int]:
    """Return revenue from usage alone, by tenant, month and model: re-rating moves revenue too, and
    shows as an adjustment."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH charged AS ("
            " SELECT entry.tenant_id, entry.day, entry.model, -entry.nanos AS nanos"
            " FROM billing_ledgerentry AS entry JOIN billing_ledgertransaction AS posted"
            " ON posted.id = entry.transaction_id AND posted.kind = 'usage'"
            " WHERE entry.tenant_id = ANY (%(tenants)s) AND entry.account = 'revenue'"
            " AND entry.day >= %(first)s"
            " UNION ALL SELECT tenant_id, day, model, nanos FROM billing_waitingcharge"
            " WHERE tenant_id = ANY (%(tenants)s) AND day >= %(first)s)"
            " SELECT tenant_id, date_trunc('month', day)::date, model, sum(nanos)"
            " FROM charged GROUP BY 1, 2, 3",
            {"tenants": tenant_ids, "first": first},
        )
        return {
            (tenant_id, month, model): int(nanos)
            for tenant_id, month, model, nanos in cursor.fetchall()
        }


def _posted() -> dict[tuple[uuid.UUID, str], int]:
    """Return the debits, by tenant and reference, of each transaction that invoices have posted."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT posted.tenant_id, posted.reference, sum(entry.nanos)"
            # By tenant and kind, so that an index finds them among all the usage.
            " FROM billing_ledgerhead AS head JOIN billing_ledgertransaction AS posted"
            " ON posted.tenant_id = head.tenant_id AND posted.kind = ANY (%s)"
            " JOIN billing_ledgerentry AS entry"
            " ON entry.transaction_id = posted.id AND entry.nanos > 0"
            " WHERE posted.reference LIKE 'invoice:%%' GROUP BY 1, 2",
            [[each.value for each in TransactionKind if each != TransactionKind.USAGE]],
        )
        return {
            (tenant_id, reference): int(nanos) for tenant_id, reference, nanos in cursor.fetchall()
        }
