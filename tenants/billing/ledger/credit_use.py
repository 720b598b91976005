"""How much of each month's usage was paid by which credit, from the ledger.

A transaction of usage says by day what was charged and by account what paid, not which paid for
which: where one holds two months, what paid first paid for the earlier one.
"""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from typing import Any

from django.db import connection

from tenants.billing.models import CREDITS, AccountName

CreditUse = dict[tuple[uuid.UUID, AccountName, date], int]

# Transactions of usage with something of these days, and the months that each is about.
_SPANS = """
WITH chosen AS (
    SELECT DISTINCT entry.transaction_id FROM billing_ledgerentry AS entry
    WHERE entry.tenant_id = ANY (%(with_credit)s) AND entry.account = 'revenue'
        AND entry.day BETWEEN %(first)s AND %(last)s
), used AS (
    SELECT posted.id FROM chosen JOIN billing_ledgertransaction AS posted
        ON posted.id = chosen.transaction_id AND posted.kind = 'usage'
), spans AS (
    SELECT entry.transaction_id AS id,
        date_trunc('month', min(entry.day))::date AS begins,
        date_trunc('month', max(entry.day))::date AS ends
    FROM billing_ledgerentry AS entry JOIN used ON entry.transaction_id = used.id
    WHERE entry.day IS NOT NULL GROUP BY entry.transaction_id
)
"""

_OF_ONE_MONTH = (
    _SPANS
    + """
SELECT entry.tenant_id, entry.account, spans.begins, sum(entry.nanos)
FROM spans JOIN billing_ledgerentry AS entry ON entry.transaction_id = spans.id
WHERE spans.begins = spans.ends AND entry.account = ANY (%(credits)s)
GROUP BY entry.tenant_id, entry.account, spans.begins
"""
)

_OF_MORE_MONTHS = (
    _SPANS
    + """
SELECT entry.tenant_id, entry.transaction_id, entry.account, entry.day, entry.nanos
FROM spans JOIN billing_ledgerentry AS entry ON entry.transaction_id = spans.id
WHERE spans.begins <> spans.ends
ORDER BY entry.transaction_id, entry.position
"""
)


def credit_used(tenant_ids: Sequence[uuid.UUID], first: date, last: date) -> CreditUse:
    """Return what credit has paid for, in nano-dollars by tenant, account and month; `first` and
    `last` are the first day of a month and the last day of one. Runs in an `operator_scope`."""
    found: CreditUse = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT tenant_id FROM billing_ledgeraccount"
            " WHERE tenant_id = ANY (%s) AND name = ANY (%s)",
            [list(tenant_ids), [account.value for account in CREDITS]],
        )
        with_credit = [tenant_id for (tenant_id,) in cursor.fetchall()]
        if not with_credit:
            return found
        parameters: dict[str, Any] = {
            "with_credit": with_credit,
            "credits": [account.value for account in CREDITS],
            "first": first,
            "last": last,
        }
        cursor.execute(_OF_ONE_MONTH, parameters)
        for tenant_id, account, month, nanos in cursor.fetchall():
            found[tenant_id, AccountName(account), month] = int(nanos)
        cursor.execute(_OF_MORE_MONTHS, parameters)
        shared: defaultdict[tuple[uuid.UUID, uuid.UUID], list[tuple[str, date | None, int]]]
        shared = defaultdict(list)
        for tenant_id, transaction_id, account, day, nanos in cursor.fetchall():
            shared[tenant_id, transaction_id].append((account, day, nanos))
    for (tenant_id, _), entries in shared.items():
        for (account, month), nanos in _in_order(entries).items():
            if first <= month <= last and account in CREDITS:
                key = (tenant_id, account, month)
                found[key] = found.get(key, 0) + nanos
    return found


def _in_order(
    entries: Sequence[tuple[str, date | None, int]],
) -> dict[tuple[AccountName, date], int]:
    """Deal what paid, in the order of its entries, out to the months, the earliest first."""
    charged: defaultdict[date, int] = defaultdict(int)
    for _, day, nanos in entries:
        if day is not None:
            charged[day.replace(day=1)] -= nanos
    held = {AccountName(account): nanos for account, day, nanos in entries if day is None}
    dealt: defaultdict[tuple[AccountName, date], int] = defaultdict(int)
    for month in sorted(charged):
        left = charged[month]
        for account in held:
            paid = min(left, held[account])
            dealt[account, month] += paid
            held[account] -= paid
            left -= paid
    return {key: nanos for key, nanos in dealt.items() if nanos}
