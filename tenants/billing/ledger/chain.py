"""The ledger's arithmetic: how a transaction is hashed, and whether a tenant's chain is whole.

PostgreSQL makes the same hashes in `ledger.sql`; this is written anew, not called by it. `encode`
is that of the audit log (`tenants.audit.chain`), and so is the hash before the first transaction.

    entry      encode(position, account, nanos, model, day, requests), '' for what is not there
    hash       SHA-256(hash before + encode(tenant, sequence, at, kind, reference, memo, expires_at,
               actor_kind, actor_id, SHA-256(all entries) in hex))
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from django.db.models import Prefetch, Sum

from tenants.audit.chain import FIRST_HASH, encode
from tenants.billing.models import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerHead,
    LedgerTransaction,
    TransactionKind,
)

_PAGE: Final = 2000
_DEBITS_TAKE: Final = (*CREDITS, AccountName.REVENUE)


def transaction_hash(transaction: LedgerTransaction, entries: Sequence[LedgerEntry]) -> bytes:
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


def ledger_problems() -> Iterator[str]:
    """Report, for fsck, each transaction that is not as posted or does not balance, and each head
    and account that does not follow from them."""
    heads = {
        tenant_id: (sequence, bytes(last), usage)
        for tenant_id, sequence, last, usage in LedgerHead.objects.values_list(
            "tenant_id", "sequence", "hash", "usage_nanos"
        )
    }
    transactions = (
        LedgerTransaction.objects.order_by("tenant_id", "sequence")
        .prefetch_related(Prefetch("entries", LedgerEntry.objects.order_by("position")))
        .iterator(chunk_size=_PAGE)
    )
    for tenant_id, of_tenant in groupby(transactions, lambda each: each.tenant_id):
        sequence, last, usage = 0, FIRST_HASH, 0
        for transaction in of_tenant:
            entries = list(transaction.entries.all())
            where = f"ledger transaction {transaction.sequence} of tenant {tenant_id}"
            if transaction.sequence != sequence + 1:
                yield f"{where}: the one before it is {sequence}, so some are missing."
            elif bytes(transaction.previous_hash) != last:
                yield f"{where}: it does not follow the one before it."
            if bytes(transaction.hash) != transaction_hash(transaction, entries):
                yield f"{where}: it is not as it was posted."
            if total := sum(entry.nanos for entry in entries):
                yield f"{where}: its entries come to {total} nano-dollars, not to 0."
            sequence, last = transaction.sequence, bytes(transaction.hash)
            if transaction.kind == TransactionKind.USAGE:
                usage -= sum(e.nanos for e in entries if e.account == AccountName.REVENUE)
        if heads.pop(tenant_id, None) != (sequence, last, usage):
            yield f"The head of the ledger of tenant {tenant_id} is not its last transaction."
    for tenant_id, (sequence, _, _) in heads.items():
        if sequence:
            yield f"The {sequence} transactions of the ledger of tenant {tenant_id} are missing."
    yield from _account_problems()


def _account_problems() -> Iterator[str]:
    moved = {
        (tenant, name): nanos * (-1 if name in _DEBITS_TAKE else 1)
        for tenant, name, nanos in LedgerEntry.objects.order_by()
        .values_list("tenant_id", "account")
        .annotate(nanos=Sum("nanos"))
    }
    for account in LedgerAccount.objects.order_by("tenant_id", "name").iterator(chunk_size=_PAGE):
        expected = moved.pop((account.tenant_id, account.name), 0)
        where = f"The account {account.name} of tenant {account.tenant_id}"
        if account.balance_nanos != expected:
            yield (
                f"{where} holds {account.balance_nanos} nano-dollars, its entries come to "
                f"{expected}."
            )
        if account.balance_nanos < 0 and account.name in (*CREDITS, AccountName.RECEIVABLE):
            yield f"{where} is below zero: {account.balance_nanos} nano-dollars."
    for tenant_id, name in moved:
        yield f"The account {name} of tenant {tenant_id} is missing."


def _moment(moment: datetime | None) -> str:
    if moment is None:
        return ""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
