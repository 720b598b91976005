"""What is on no invoice yet: usage, what else the ledger booked and what credit has paid, each less
what standing invoices tell already. So late usage of earlier months needs no queue of its own, and
a draft that was discarded or an invoice that is void leaves nothing out.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from django.db.models import Sum

from tenants.billing.invoicing.ledger_lines import ledger_lines
from tenants.billing.invoicing.usage_source import UsageGroup, UsageLine, usage_source
from tenants.billing.ledger.credit_use import credit_used
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LineKind,
)
from tenants.billing.periods import last_day, months_before

# How far back late usage is looked for.
LATE_MONTHS: Final = 12


@dataclass(kw_only=True)
class Uninvoiced:
    """Of one tenant: usage by group, lines of what else the ledger booked, nano-dollars that credit
    paid by account and month, and its newest invoice, which all of it comes after."""

    used: list[UsageLine]
    booked: list[InvoiceLine]
    credit: dict[tuple[AccountName, date], int]
    before: Invoice | None


def uninvoiced(tenant_ids: Sequence[uuid.UUID], period: date) -> dict[uuid.UUID, Uninvoiced]:
    """Return what each of these tenants is to be invoiced for up to the end of a month."""
    first, last = months_before(period, LATE_MONTHS), last_day(period)
    source = usage_source()
    found = {
        tenant_id: Uninvoiced(used=[], booked=[], credit={}, before=None)
        for tenant_id in tenant_ids
    }
    invoiced = _invoiced(tenant_ids, first)
    for line in source.lines(tenant_ids, first, last):
        left = _less(line, invoiced.get(line.group))
        is_late = left.period < period
        if left.cost_nanos or (left.requests and not is_late):
            found[line.tenant_id].used.append(left)
    for booked in ledger_lines(tenant_ids, period):
        found[booked.tenant_id].booked.append(booked)
    invoiced_credit = _credit_invoiced(tenant_ids, first)
    for (tenant_id, account, month), nanos in credit_used(tenant_ids, first, last).items():
        left_nanos = nanos - invoiced_credit.get((tenant_id, account, month), 0)
        if left_nanos:
            found[tenant_id].credit[account, month] = left_nanos
    newest = Invoice.objects.not_void().filter(tenant__in=tenant_ids)
    for invoice in newest.order_by("tenant_id", "-period").distinct("tenant_id"):
        found[invoice.tenant_id].before = invoice
    return found


# What is on invoices already ---------------------------------------------------------------------


_SUMS: Final = (
    "requests",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "amount_nanos",
)


def _lines_not_void(tenant_ids: Sequence[uuid.UUID], first: date) -> Any:
    return (
        InvoiceLine.objects.filter(tenant__in=tenant_ids, period__gte=first)
        .exclude(invoice__state=InvoiceState.VOID)
        .order_by()
    )


def _invoiced(tenant_ids: Sequence[uuid.UUID], first: date) -> dict[UsageGroup, list[int]]:
    """Return what standing invoices charge for, by group; the sums are in the order of `_SUMS`."""
    rows = (
        _lines_not_void(tenant_ids, first)
        .filter(kind__in=[LineKind.USAGE, LineKind.LATE_USAGE])
        .values_list(*UsageGroup._fields)
        .annotate(*(Sum(name, default=0) for name in _SUMS))
    )
    return {UsageGroup(*row[:6]): list(row[6:]) for row in rows}


def _less(line: UsageLine, invoiced: list[int] | None) -> UsageLine:
    if invoiced is None:
        return line
    requests, prompt, cached, completion, nanos = invoiced
    return UsageLine(
        tenant_id=line.tenant_id,
        period=line.period,
        project_id=line.project_id,
        model=line.model,
        tier=line.tier,
        adapter=line.adapter,
        requests=line.requests - requests,
        prompt_tokens=line.prompt_tokens - prompt,
        cached_tokens=line.cached_tokens - cached,
        completion_tokens=line.completion_tokens - completion,
        cost_nanos=line.cost_nanos - nanos,
    )


def _credit_invoiced(
    tenant_ids: Sequence[uuid.UUID], first: date
) -> dict[tuple[uuid.UUID, AccountName, date], int]:
    """Return what standing invoices say that credit has paid of usage, by month."""
    rows = (
        _lines_not_void(tenant_ids, first)
        .filter(kind=LineKind.PAID_BY_CREDIT, ledger_transaction_id=None)
        .values_list("tenant_id", "account", "period")
        .annotate(Sum("amount_nanos"))
    )
    return {
        (tenant_id, AccountName(account), month): -nanos
        for tenant_id, account, month, nanos in rows
    }
