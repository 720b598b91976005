"""Where money goes that a tenant is given back: to where it came from (docs/adr/0040).

In this order, each up to what it has paid for:

    what is owed, and what was written off   nobody has paid that
    promotional, then SLA credit             it was given, and stays what was given
    prepaid credit                           up to what was paid in and is not there any more

What is left after that nobody has ever paid for: it is a gift, so promotional credit. So prepaid
credit never exceeds what was paid in less what was paid out, and nothing given can be paid out.
"""

import datetime
import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from django.db.models import Sum

from tenants.billing.ledger.credit_use import credit_used
from tenants.billing.ledger.posting import Balances, Entry
from tenants.billing.models import (
    AccountName,
    InvoiceLine,
    InvoiceState,
    LedgerEntry,
    LineKind,
    TransactionKind,
)
from tenants.billing.periods import last_day

# Of credit that was given away.
PaidBy = Mapping[AccountName, int]
_GIVEN: Final = (AccountName.PROMOTIONAL_CREDIT, AccountName.SLA_CREDIT)


def give_back(
    nanos: int, held: Balances, paid: PaidBy, *, month: datetime.date | None = None
) -> list[Entry]:
    """Return the entries, which come to -`nanos`, that set an amount against what paid for it.
    `paid` says what of it credit that was given away has paid for. Those to credit bear the
    `month` that it is about, its first day."""
    left, entries = nanos, []

    def back_to(account: AccountName, most: int, day: datetime.date | None = None) -> None:
        nonlocal left
        part = max(0, min(left, most))
        entries.append(Entry(account=account, nanos=-part, day=day))
        left -= part

    back_to(AccountName.RECEIVABLE, held[AccountName.RECEIVABLE])
    back_to(AccountName.BAD_DEBT, held[AccountName.BAD_DEBT])
    for account in _GIVEN:
        back_to(account, paid.get(account, 0), month)
    back_to(
        AccountName.PREPAID_CREDIT,
        held[AccountName.CASH] - held[AccountName.PREPAID_CREDIT],
        month,
    )
    entries += [
        Entry(account=AccountName.ADJUSTMENTS, nanos=-left),
        Entry(account=AccountName.PROMOTION_EXPENSE, nanos=left),
        Entry(account=AccountName.PROMOTIONAL_CREDIT, nanos=-left),
    ]
    return merged(entries)


def paid_by(held: Balances) -> PaidBy:
    """Return what credit that was given away has paid for of all that a tenant was ever charged,
    and did not get back."""
    return {
        AccountName.PROMOTIONAL_CREDIT: held[AccountName.PROMOTION_EXPENSE]
        - held[AccountName.PROMOTIONAL_CREDIT],
        AccountName.SLA_CREDIT: held[AccountName.SLA_EXPENSE] - held[AccountName.SLA_CREDIT],
    }


def paid_by_in(tenant_id: uuid.UUID, month: datetime.date, held: Balances) -> PaidBy:
    """Return the same of a month's usage, `month` its first day: what credit paid at once, and SLA
    credit on its invoice. Runs in an `operator_scope`, under the tenant's lock."""
    used = credit_used([tenant_id], month, last_day(month))
    lessened = (
        InvoiceLine.objects.filter(tenant=tenant_id, kind=LineKind.SLA_CREDIT, period=month)
        .exclude(invoice__state__in=[InvoiceState.DRAFT, InvoiceState.VOID])
        .aggregate(nanos=Sum("amount_nanos", default=0))["nanos"]
    )
    given_back = dict(
        LedgerEntry.objects.filter(
            tenant=tenant_id, transaction__kind=TransactionKind.RE_RATING, day=month
        )
        .order_by()
        .values_list("account")
        .annotate(nanos=Sum("nanos"))
    )
    at_most = paid_by(held)
    paid = {
        account: used.get((tenant_id, account, month), 0) + given_back.get(account, 0)
        for account in _GIVEN
    }
    paid[AccountName.SLA_CREDIT] -= lessened
    return {account: min(nanos, at_most[account]) for account, nanos in paid.items()}


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """Return one entry for each account, model and day, and none of nothing."""
    sums: dict[tuple[AccountName, str | None, datetime.date | None], int] = {}
    for entry in entries:
        key = (entry.account, entry.model, entry.day)
        sums[key] = sums.get(key, 0) + entry.nanos
    return [
        Entry(account=account, nanos=nanos, model=model, day=day)
        for (account, model, day), nanos in sums.items()
        if nanos
    ]


def held_after(held: Balances, entries: Iterable[Entry]) -> Balances:
    """Return what the accounts hold once these entries are posted."""
    after = dict(held)
    for entry in entries:
        taken = entry.account in (*_GIVEN, AccountName.PREPAID_CREDIT, AccountName.REVENUE)
        after[entry.account] += -entry.nanos if taken else entry.nanos
    return after
