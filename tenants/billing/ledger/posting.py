"""The ledger: every movement of a tenant's money, in balanced transactions that are posted once.

PostgreSQL keeps it (`ledger.sql`); this says which accounts a movement goes through. Amounts are
integer nano-dollars. Posting takes the `operator_scope` and holds the tenant's ledger until the
transaction around it ends: whoever posts for several tenants does it in one call, or in the order
of their ids. Whoever takes the lock first posts the usage that waits (`waiting`), so that money
moves in the order in which it was spent, given and taken.
"""

import datetime
import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection

from tenants.billing.ledger import balances, spend
from tenants.billing.models import CREDITS, AccountName, TransactionKind
from tenants.models.policy_change import PolicyChange, PolicyImpact, PolicyPart

Balances = Mapping[AccountName, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageCharge:
    """What requests to one model that arrived on one day (UTC) have cost a tenant."""

    tenant_id: uuid.UUID
    model: str
    day: datetime.date
    nanos: int
    requests: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A line of a transaction: `nanos` above zero debit the account, below zero credit it."""

    account: AccountName
    nanos: int
    model: str | None = None
    day: datetime.date | None = None
    requests: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Posting:
    """A transaction to be posted. Its tenant has no other of the same `reference`."""

    tenant_id: uuid.UUID
    kind: TransactionKind
    reference: str
    entries: Sequence[Entry]
    memo: str = ""
    expires_at: datetime.datetime | None = None


class NegativeCharge(ValueError):
    """Usage that costs less than nothing."""

    def __init__(self, charge: UsageCharge) -> None:
        super().__init__(f"Usage costs nothing or more, got {charge.nanos} nano-dollars.")
        self.charge = charge


def post_usage(charges: Sequence[UsageCharge], *, batch_id: uuid.UUID) -> None:
    """Post usage at once: one transaction for each tenant and batch. Credit pays first, and what it
    does not cover is owed. A batch is posted once. Raises `NegativeCharge`."""
    chargeable = priced(charges)
    tenant_ids = sorted({charge.tenant_id for charge in chargeable})
    _post_usage(chargeable, lock_balances(tenant_ids), batch_id)
    spend.raise_after_commit(balances.prepaid_among(tenant_ids))


def priced(charges: Iterable[UsageCharge]) -> list[UsageCharge]:
    """Return those that cost anything. Raises `NegativeCharge`."""
    found = []
    for charge in charges:
        if charge.nanos < 0:
            raise NegativeCharge(charge)
        if charge.nanos:
            found.append(charge)
    return found


def lock_balances(tenant_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Balances]:
    """Post the usage that waits and return what each account holds; nobody else posts to these
    tenants until the transaction ends."""
    tenants = list(tenant_ids)
    held = _locked(tenants)
    waiting = _take_waiting(tenants)
    if not waiting:
        return held
    _post_usage(waiting, held, uuid.uuid4())
    return _locked(tenants)


def note_overdrawn(tenant_ids: Iterable[uuid.UUID]) -> None:
    """Note a change of the policy: what went beyond the credit, as after a lost Redis, raises what
    may ever be spent."""
    PolicyChange.note(
        (PolicyImpact(PolicyPart.TENANTS, str(each)) for each in tenant_ids), at_once=False
    )


def _locked(tenant_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Balances]:
    held: dict[uuid.UUID, dict[AccountName, int]] = {
        tenant_id: dict.fromkeys(AccountName, 0) for tenant_id in tenant_ids
    }
    if held:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM penstock_ledger_lock(%s)", [list(held)])
            for tenant_id, account, nanos in cursor.fetchall():
                held[tenant_id][AccountName(account)] = nanos
    return dict(held)


def _take_waiting(tenant_ids: Sequence[uuid.UUID]) -> list[UsageCharge]:
    """Take the charges that wait out of their table, to be posted in this transaction."""
    if not tenant_ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM penstock_ledger_take_waiting(%s)", [list(tenant_ids)])
        return [
            UsageCharge(tenant_id=tenant, model=model, day=day, nanos=nanos, requests=requests)
            for tenant, model, day, nanos, requests in cursor.fetchall()
        ]


def _post_usage(
    charges: Iterable[UsageCharge], held: Mapping[uuid.UUID, Balances], batch_id: uuid.UUID
) -> None:
    """Post to tenants that are locked."""
    of_tenants: defaultdict[uuid.UUID, list[UsageCharge]] = defaultdict(list)
    for charge in charges:
        of_tenants[charge.tenant_id].append(charge)
    post(
        Posting(
            tenant_id=tenant_id,
            kind=TransactionKind.USAGE,
            reference=f"usage:{batch_id}",
            entries=_usage(of_tenant, held[tenant_id]),
        )
        for tenant_id, of_tenant in of_tenants.items()
    )
    overdrawn = [
        tenant_id
        for tenant_id, of_tenant in of_tenants.items()
        if _total(of_tenant) > _credit(held[tenant_id])
    ]
    if overdrawn:
        note_overdrawn(balances.prepaid_among(overdrawn))


def post(postings: Iterable[Posting]) -> list[bool]:
    """Post transactions in one round trip, at most one of a tenant; of each False where it was
    posted before. What does not balance, or would take an account below its floor, fails."""
    rows = [_row(posting) for posting in postings]
    if not rows:
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT penstock_ledger_post(%s::jsonb)", [json.dumps(rows)])
        posted = {str(tenant_id) for (tenant_id,) in cursor.fetchall()}
    return [row["tenant_id"] in posted for row in rows]


def _total(charges: Iterable[UsageCharge]) -> int:
    return sum(charge.nanos for charge in charges)


def _credit(held: Balances) -> int:
    return sum(held[account] for account in CREDITS)


def _usage(charges: Sequence[UsageCharge], held: Balances) -> list[Entry]:
    return [
        *_paid_from((*CREDITS, AccountName.RECEIVABLE), _total(charges), held),
        *(
            Entry(
                account=AccountName.REVENUE,
                nanos=-charge.nanos,
                model=charge.model,
                day=charge.day,
                requests=charge.requests,
            )
            for charge in charges
        ),
    ]


def _paid_from(accounts: Sequence[AccountName], nanos: int, held: Balances) -> list[Entry]:
    """Return debits of the accounts in their order, each of what it holds; the last takes the
    rest."""
    *first, last = accounts
    debits = []
    for account in first:
        paid = min(nanos, held[account])
        if paid:
            debits.append(Entry(account=account, nanos=paid))
        nanos -= paid
    if nanos:
        debits.append(Entry(account=last, nanos=nanos))
    return debits


def _row(posting: Posting) -> dict[str, object]:
    return {
        "tenant_id": str(posting.tenant_id),
        "kind": posting.kind.value,
        "reference": posting.reference,
        "memo": posting.memo,
        "expires_at": posting.expires_at and posting.expires_at.isoformat(),
        "entries": [
            {
                "account": entry.account.value,
                "nanos": entry.nanos,
                "model": entry.model,
                "day": entry.day and entry.day.isoformat(),
                "requests": entry.requests,
            }
            for entry in posting.entries
        ],
    }
