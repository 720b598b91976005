"""For fsck: numbers, sums, usage, ledger and payments of the invoices."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from django.db import connection
from django.db.models import Count, F, Max, Min, Sum

from tenants.billing.invoices import sla_reference
from tenants.billing.models import (
    Invoice,
    InvoiceCounter,
    InvoiceLine,
    InvoiceState,
    LineKind,
)
from tenants.billing.periods import last_day
from tenants.billing.usage_source import usage_source

_CHUNK = 200
_USAGE = (LineKind.USAGE, LineKind.LATE_USAGE)


def number_problems() -> Iterator[str]:
    """Each year's numbers run from 1 to the last that was given, none left out."""
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
    """Lines come to what the invoice says, and what a tenant's invoices carry on is brought on."""
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
    chain = Invoice.objects.standing().order_by("tenant_id", "period")
    for invoice in chain.iterator(chunk_size=1000):
        expected = carried.get(invoice.tenant_id, 0)
        if invoice.brought_forward_nanos != expected:
            yield (
                f"Invoice {invoice.id} ({invoice}) brings forward {invoice.brought_forward_nanos} "
                f"nano-dollars, the one before it carries {expected}."
            )
        carried[invoice.tenant_id] = invoice.carried_nanos


def usage_problems() -> Iterator[str]:
    """Of each tenant and month, what standing invoices charge for usage is what the usage cost that
    was recorded until the newest of them; and what the ledger has as revenue beyond it is late."""
    newest = {
        invoice.tenant_id: invoice
        for invoice in Invoice.objects.standing()
        .order_by("tenant_id", "-period")
        .distinct("tenant_id")
        .iterator(chunk_size=1000)
    }
    tenant_ids = list(newest)
    for start in range(0, len(tenant_ids), _CHUNK):
        chunk = tenant_ids[start : start + _CHUNK]
        charged = _charged(chunk)
        if not charged:
            continue
        first = min(month for _, month in charged)
        used = _used(chunk, first, newest)
        revenue = _revenue(chunk, first)
        for tenant_id, month in sorted(charged.keys() | used.keys(), key=str):
            if month > newest[tenant_id].period:
                continue
            on_invoices = charged.get((tenant_id, month), 0)
            late = used.get((tenant_id, month), 0) - on_invoices
            if late:
                late -= usage_source().cost_recorded_after(
                    tenant_id, month, newest[tenant_id].usage_until
                )
            if late:
                yield (
                    f"Tenant {tenant_id} used {month:%Y-%m} for {on_invoices + late} nano-dollars "
                    f"until its newest invoice; its invoices charge {on_invoices}."
                )
            booked = revenue.get((tenant_id, month), 0)
            if booked != used.get((tenant_id, month), 0):
                yield (
                    f"Tenant {tenant_id} used {month:%Y-%m} for {used.get((tenant_id, month), 0)} "
                    f"nano-dollars; its ledger has {booked} of revenue."
                )


def posting_problems() -> Iterator[str]:
    """What invoices move in the ledger stands there once, with the same amount."""
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
    paid = Invoice.objects.filter(state=InvoiceState.PAID, payable_nanos__gt=0)
    for invoice in paid.select_related("payment").order_by("id"):
        if not hasattr(invoice, "payment"):
            yield f"Invoice {invoice} is paid and has no payment."
            continue
        if invoice.payment.amount_nanos != invoice.payable_nanos:
            yield (
                f"Invoice {invoice} asked for {invoice.payable_nanos} nano-dollars, its payment "
                f"is {invoice.payment.amount_nanos}."
            )
        expected[invoice.tenant_id, f"invoice:{invoice.id}:payment"] = invoice.payable_nanos
    posted = _posted()
    for key in sorted(expected.keys() | posted.keys(), key=str):
        wanted, found = expected.get(key, 0), posted.get(key, 0)
        if wanted != found:
            yield (
                f"The ledger of tenant {key[0]} has {found} nano-dollars under {key[1]!r}, "
                f"expected {wanted}."
            )


def invoice_problems() -> Iterable[str]:
    yield from number_problems()
    yield from sum_problems()
    yield from posting_problems()
    yield from usage_problems()


# Sums --------------------------------------------------------------------------------------------


def _charged(tenant_ids: list[uuid.UUID]) -> dict[tuple[uuid.UUID, date], int]:
    rows = (
        InvoiceLine.objects.filter(tenant__in=tenant_ids, kind__in=_USAGE)
        .exclude(invoice__state=InvoiceState.VOID)
        .order_by()
        .values_list("tenant_id", "period")
        .annotate(Sum("amount_nanos"))
    )
    return {(tenant_id, month): nanos for tenant_id, month, nanos in rows}


def _used(
    tenant_ids: list[uuid.UUID], first: date, newest: dict[uuid.UUID, Invoice]
) -> dict[tuple[uuid.UUID, date], int]:
    last = last_day(max(newest[tenant_id].period for tenant_id in tenant_ids))
    sums: defaultdict[tuple[uuid.UUID, date], int] = defaultdict(int)
    for line in usage_source().lines(tenant_ids, first, last):
        sums[line.tenant_id, line.period] += line.cost_nanos
    return dict(sums)


def _revenue(tenant_ids: list[uuid.UUID], first: date) -> dict[tuple[uuid.UUID, date], int]:
    """Of usage alone: re-rating moves revenue too, and shows as an adjustment."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT entry.tenant_id, date_trunc('month', entry.day)::date, -sum(entry.nanos)"
            " FROM billing_ledgerentry AS entry JOIN billing_ledgertransaction AS posted"
            " ON posted.id = entry.transaction_id AND posted.kind = 'usage'"
            " WHERE entry.tenant_id = ANY (%s) AND entry.account = 'revenue' AND entry.day >= %s"
            " GROUP BY 1, 2",
            [tenant_ids, first],
        )
        return {(tenant_id, month): int(nanos) for tenant_id, month, nanos in cursor.fetchall()}


def _posted() -> dict[tuple[uuid.UUID, str], int]:
    """By tenant and reference, what invoices have posted: the debits of each transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT posted.tenant_id, posted.reference, sum(entry.nanos)"
            " FROM billing_ledgertransaction AS posted JOIN billing_ledgerentry AS entry"
            " ON entry.transaction_id = posted.id AND entry.nanos > 0"
            " WHERE posted.reference LIKE 'invoice:%%' GROUP BY 1, 2",
            [],
        )
        return {
            (tenant_id, reference): int(nanos) for tenant_id, reference, nanos in cursor.fetchall()
        }
