"""The ledger's arithmetic: how a transaction is hashed, and whether a tenant's chain is whole.

PostgreSQL makes the same hashes in `ledger.sql`; this is written anew, not called by it. `encode`
is that of the audit log (`tenants.audit.chain`), and so is the hash before the first transaction.

    entry      encode(position, account, nanos, model, day, requests), '' for what is not there
    hash       SHA-256(hash before + encode(tenant, sequence, at, kind, reference, memo, expires_at,
               actor_kind, actor_id, SHA-256(all entries) in hex))
"""

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from tenants.audit.chain import FIRST_HASH, encode
from tenants.audit.checkpoints import PAGE, Place, Step, verify_whole
from tenants.billing.models import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerHead,
    LedgerTransaction,
    TransactionKind,
)
from tenants.models import Tenant

# Among the sums by account.
_USAGE: Final = "usage"
_DEBITS_TAKE: Final = (*CREDITS, AccountName.REVENUE)


class Line(NamedTuple):
    """What the hash covers of an entry, and whose it is. Models would take thrice the time."""

    transaction_id: uuid.UUID
    position: int
    account: str
    nanos: int
    model: str | None
    day: date | None
    requests: int | None


class Posted(NamedTuple):
    """What the hash covers of a transaction, and the hash."""

    id: uuid.UUID
    tenant_id: uuid.UUID
    sequence: int
    at: datetime
    kind: str
    reference: str
    memo: str
    expires_at: datetime | None
    actor_kind: str
    actor_id: str
    previous_hash: bytes
    hash: bytes


def transaction_hash(
    transaction: LedgerTransaction | Posted, entries: Sequence[LedgerEntry | Line]
) -> bytes:
    listed = b"".join(
        encode(
            str(entry.position),
            entry.account,
            str(entry.nanos),
            entry.model or "",
            "" if entry.day is None else entry.day.isoformat(),
            "" if entry.requests is None else str(entry.requests),
        )
        for entry in entries
    )
    return hashlib.sha256(
        bytes(transaction.previous_hash)
        + encode(
            str(transaction.tenant_id),
            str(transaction.sequence),
            _moment(transaction.at),
            transaction.kind,
            transaction.reference,
            transaction.memo,
            _moment(transaction.expires_at),
            transaction.actor_kind,
            transaction.actor_id,
            hashlib.sha256(listed).hexdigest(),
        )
    ).digest()


class LedgerChains:
    """The tenants' chains of transactions, for `checkpoints`. What is summed up by name is what the
    entries of an account come to, and the usage that was posted."""

    name = "ledger"

    def chains(self) -> Iterator[uuid.UUID]:
        yield from Tenant.objects.values_list("id", flat=True)

    def advance(self, chain: uuid.UUID, place: Place) -> Step:
        found = LedgerTransaction.objects.filter(tenant=chain, sequence__gte=place.sequence)
        rows = found.order_by("sequence").values_list(*Posted._fields)
        page = [Posted(*row) for row in rows[: PAGE + bool(place.sequence)]]
        entries = _entries_of(page)
        problems: list[str] = []
        if place.sequence:
            first = page.pop(0) if page else None
            if first is None or not _is_still(first, entries[first.id], place):
                problems.append(
                    f"ledger transaction {place.sequence} of tenant {chain}: it is not as fsck "
                    "found it before."
                )
        after, is_last = place, len(page) < PAGE
        for transaction in page:
            own = entries[transaction.id]
            problems += _wrong(transaction, own, after)
            after = _after(transaction, own, after)
        if is_last:
            problems += _wrong_end(chain, after)
            problems += _account_problems(chain, after.sums)
        return Step(place=after, problems=problems, is_last=is_last)


def ledger_problems() -> Iterator[str]:
    """Report each transaction that is not as posted or does not balance, and each head and account
    that does not follow from them, from the beginning; in the open scope."""
    yield from verify_whole(LedgerChains())


def _entries_of(page: Sequence[Posted]) -> defaultdict[uuid.UUID, list[Line]]:
    found = LedgerEntry.objects.filter(transaction__in=[each.id for each in page])
    entries: defaultdict[uuid.UUID, list[Line]] = defaultdict(list)
    for row in found.order_by("position").values_list(*Line._fields):
        line = Line(*row)
        entries[line.transaction_id].append(line)
    return entries


def _is_still(transaction: Posted, entries: Sequence[Line], place: Place) -> bool:
    return (
        transaction.sequence == place.sequence
        and bytes(transaction.hash) == place.hash
        and transaction_hash(transaction, entries) == place.hash
    )


def _wrong(transaction: Posted, entries: Sequence[Line], before: Place) -> Iterator[str]:
    where = f"ledger transaction {transaction.sequence} of tenant {transaction.tenant_id}"
    if transaction.sequence != before.sequence + 1:
        yield f"{where}: the one before it is {before.sequence}, so some are missing."
    elif bytes(transaction.previous_hash) != before.hash:
        yield f"{where}: it does not follow the one before it."
    if bytes(transaction.hash) != transaction_hash(transaction, entries):
        yield f"{where}: it is not as it was posted."
    if total := sum(entry.nanos for entry in entries):
        yield f"{where}: its entries come to {total} nano-dollars, not to 0."


def _after(transaction: Posted, entries: Sequence[Line], before: Place) -> Place:
    sums = dict(before.sums)
    for entry in entries:
        sums[entry.account] = sums.get(entry.account, 0) + entry.nanos
        if transaction.kind == TransactionKind.USAGE and entry.account == AccountName.REVENUE:
            sums[_USAGE] = sums.get(_USAGE, 0) - entry.nanos
    return Place(sequence=transaction.sequence, hash=bytes(transaction.hash), sums=sums)


def _wrong_end(tenant_id: uuid.UUID, place: Place) -> Iterator[str]:
    head = LedgerHead.objects.filter(tenant=tenant_id).first()
    said = (0, FIRST_HASH, 0)
    if head is not None:
        said = (head.sequence, bytes(head.hash), head.usage_nanos)
    if said == (place.sequence, place.hash, place.sums.get(_USAGE, 0)):
        return
    if place.sequence:
        yield f"The head of the ledger of tenant {tenant_id} is not its last transaction."
    elif said[0]:
        yield f"The {said[0]} transactions of the ledger of tenant {tenant_id} are missing."


def _account_problems(tenant_id: uuid.UUID, sums: Mapping[str, int]) -> Iterator[str]:
    moved = {
        name: nanos * (-1 if name in _DEBITS_TAKE else 1)
        for name, nanos in sums.items()
        if name != _USAGE
    }
    for account in LedgerAccount.objects.filter(tenant=tenant_id).order_by("name"):
        expected = moved.pop(account.name, 0)
        where = f"The account {account.name} of tenant {tenant_id}"
        if account.balance_nanos != expected:
            yield (
                f"{where} holds {account.balance_nanos} nano-dollars, its entries come to "
                f"{expected}."
            )
        if account.balance_nanos < 0 and account.name in (*CREDITS, AccountName.RECEIVABLE):
            yield f"{where} is below zero: {account.balance_nanos} nano-dollars."
    for name in moved:
        yield f"The account {name} of tenant {tenant_id} is missing."


def _moment(moment: datetime | None) -> str:
    if moment is None:
        return ""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
