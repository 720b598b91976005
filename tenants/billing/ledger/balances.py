"""What tenants may spend, as admission is told, and what they have, as people read it.

Redis counts all that a tenant ever spent and never learns of credit by itself. Its limit is
therefore all that it may ever spend: the credit that is left and all usage that was posted. Posting
usage moves from one to the other, so the limit changes only when credit is given or taken.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from django.db import models

from tenants.billing.models import CREDITS, AccountName, LedgerAccount, LedgerHead
from tenants.models.tenant import BillingMode, Tenant

_CREDITS: Final = [name.value for name in CREDITS]


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """What a tenant has and owes by the ledger, in nano-dollars."""

    promotional_nanos: int
    sla_nanos: int
    prepaid_nanos: int
    owed_nanos: int

    @property
    def credit_nanos(self) -> int:
        return self.promotional_nanos + self.sla_nanos + self.prepaid_nanos


def balance_of(tenant_id: uuid.UUID) -> Balance:
    held = dict(
        LedgerAccount.objects.filter(tenant_id=tenant_id).values_list("name", "balance_nanos")
    )
    return Balance(
        promotional_nanos=held.get(AccountName.PROMOTIONAL_CREDIT, 0),
        sla_nanos=held.get(AccountName.SLA_CREDIT, 0),
        prepaid_nanos=held.get(AccountName.PREPAID_CREDIT, 0),
        owed_nanos=held.get(AccountName.RECEIVABLE, 0),
    )


def spendable(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return all that each may ever spend, in nano-dollars: the value of its limit `balance`."""
    if not tenant_ids:
        return {}
    nanos: defaultdict[uuid.UUID, int] = defaultdict(int)
    heads = LedgerHead.objects.filter(tenant__in=tenant_ids).values_list("tenant", "usage_nanos")
    credit = LedgerAccount.objects.filter(tenant__in=tenant_ids, name__in=_CREDITS)
    for rows in (heads, credit.values_list("tenant", "balance_nanos")):
        for tenant_id, amount in rows:
            nanos[tenant_id] += amount
    return {tenant_id: nanos[tenant_id] for tenant_id in tenant_ids}


def prepaid_among(tenant_ids: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    return list(prepaid_tenants().filter(id__in=list(tenant_ids)).values_list("id", flat=True))


def prepaid_tenants() -> "models.QuerySet[Tenant]":
    return Tenant.objects.filter(billing_mode=BillingMode.PREPAID).order_by()


def posted_usage(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return all usage that was ever posted for each, in nano-dollars."""
    heads = LedgerHead.objects.filter(tenant__in=tenant_ids)
    return dict(heads.values_list("tenant_id", "usage_nanos"))
