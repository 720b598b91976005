"""What tenants may spend, as admission is told, and what they have, as people read it.

Redis counts all that a tenant ever spent and never learns of credit by itself. Its limit is
therefore all that it may ever spend: the credit that is left and all usage that was charged.
Charging usage moves from one to the other, so the limit changes only when credit is given or taken.

Usage is posted within minutes of its being recorded (`waiting`). All that is read here counts what
waits as it will be paid, in one statement: what is posted meanwhile is seen once.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db import models
from django.db.models import Value

from tenants.billing.models import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerHead,
    WaitingCharge,
)
from tenants.models.tenant import BillingMode, Tenant

_USAGE: Final = "usage"
_WAITING: Final = "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """What a tenant has and owes, in nano-dollars."""

    promotional_nanos: int
    sla_nanos: int
    prepaid_nanos: int
    owed_nanos: int

    @property
    def credit_nanos(self) -> int:
        return self.promotional_nanos + self.sla_nanos + self.prepaid_nanos


def balance_of(tenant_id: uuid.UUID) -> Balance:
    held = _sums([tenant_id])[tenant_id]
    waiting = held[_WAITING]
    for account in CREDITS:
        paid = min(waiting, held[account.value])
        held[account.value] -= paid
        waiting -= paid
    return Balance(
        promotional_nanos=held[AccountName.PROMOTIONAL_CREDIT.value],
        sla_nanos=held[AccountName.SLA_CREDIT.value],
        prepaid_nanos=held[AccountName.PREPAID_CREDIT.value],
        owed_nanos=held[AccountName.RECEIVABLE.value] + waiting,
    )


def credit_left(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return the credit of each, in nano-dollars."""
    sums = _sums(tenant_ids)
    return {each: max(0, _credit(sums[each]) - sums[each][_WAITING]) for each in tenant_ids}


def spendable(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return all that each may ever spend, in nano-dollars: the value of its limit `balance`."""
    sums = _sums(tenant_ids)
    # What waits and no credit covers will be owed: it is spent all the same.
    return {
        each: sums[each][_USAGE] + max(_credit(sums[each]), sums[each][_WAITING])
        for each in tenant_ids
    }


def overdrawn_among(tenant_ids: Collection[uuid.UUID]) -> list[uuid.UUID]:
    """Return those for whom more waits than credit can pay."""
    sums = _sums(tenant_ids)
    return [each for each in tenant_ids if sums[each][_WAITING] > _credit(sums[each])]


def charged_usage(tenant_ids: Collection[uuid.UUID] | None = None) -> dict[uuid.UUID, int]:
    """Return all usage that was ever charged to each, or to every tenant, in nano-dollars."""
    nanos: defaultdict[uuid.UUID, int] = defaultdict(int)
    for tenant_id, _, amount in _of(tenant_ids, LedgerHead, _USAGE, "usage_nanos").union(
        _of(tenant_ids, WaitingCharge, _WAITING, "nanos"), all=True
    ):
        nanos[tenant_id] += amount
    return dict(nanos)


def prepaid_among(tenant_ids: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    return list(prepaid_tenants().filter(id__in=list(tenant_ids)).values_list("id", flat=True))


def prepaid_tenants() -> "models.QuerySet[Tenant]":
    return Tenant.objects.filter(billing_mode=BillingMode.PREPAID).order_by()


def _credit(sums: dict[str, int]) -> int:
    return sum(sums[account.value] for account in CREDITS)


def _sums(tenant_ids: Collection[uuid.UUID]) -> defaultdict[uuid.UUID, defaultdict[str, int]]:
    """Return what each account of a tenant holds, its `usage` that was posted and what waits."""
    sums: defaultdict[uuid.UUID, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    if not tenant_ids:
        return sums
    accounts = LedgerAccount.objects.filter(tenant__in=tenant_ids).order_by()
    for tenant_id, name, amount in accounts.values_list("tenant_id", "name", "balance_nanos").union(
        _of(tenant_ids, LedgerHead, _USAGE, "usage_nanos"),
        _of(tenant_ids, WaitingCharge, _WAITING, "nanos"),
        all=True,
    ):
        sums[tenant_id][name] += amount
    return sums


def _of(
    tenant_ids: Collection[uuid.UUID] | None,
    model: type[LedgerHead] | type[WaitingCharge],
    name: str,
    column: str,
) -> Any:
    rows: Any = model.objects.order_by()
    if tenant_ids is not None:
        rows = rows.filter(tenant__in=tenant_ids)
    return rows.values_list("tenant_id", Value(name), column)
