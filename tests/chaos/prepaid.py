"""Prepaid tenants of the money drill: one that has enough, and one whose credit runs out."""

import uuid
from dataclasses import dataclass

from asgiref.sync import sync_to_async

from tests.chaos.load import Load, Target
from tests.chaos.processes import until
from tests.chaos.stack import MODEL, Stack

AMPLE_NANOS = 10**12
# About sixty answers, and a dozen: the latter are asked for when Redis is lost.
SHORT_NANOS = 13_000_000
MORE_NANOS = 2_600_000
STREAMS = 5


@sync_to_async
def give_credit(tenant_id: str, nanos: int) -> None:
    """From now on it may spend this and no more."""
    from tenants.billing.ledger import credit
    from tenants.isolation.scoping import operator_scope
    from tenants.models import BillingMode, Tenant

    with operator_scope("chaos drills"):
        tenant = Tenant.objects.get(id=tenant_id)
        credit.top_up(tenant.id, nanos, reference="drill")
        tenant.set_billing_mode(BillingMode.PREPAID)


@dataclass(kw_only=True)
class ShortOfCredit:
    """A tenant that asks on after its credit is spent, and gets a little more from time to time."""

    tenant_id: str
    load: Load
    times: int = 0

    async def give_more(self) -> None:
        """It has requests open a moment later, and not all that ended are on record."""
        ended = len(self.load.answers)
        self.times += 1
        await _top_up(self.tenant_id, MORE_NANOS, f"drill {self.times}")
        await until(lambda: self._has_been_answered(ended))

    async def _has_been_answered(self, since: int) -> bool:
        return any(answer.is_complete for answer in self.load.answers[since:])


async def short_of_credit(stack: Stack) -> ShortOfCredit:
    key, tenant_id = await _make_tenant()
    await give_credit(tenant_id, SHORT_NANOS)
    load = Load(stack.ports, Target(key, MODEL), streams=STREAMS)
    return ShortOfCredit(tenant_id=tenant_id, load=load)


@sync_to_async
def owed_by(tenant_id: str) -> int:
    from tenants.billing.ledger.balances import balance_of
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        return balance_of(uuid.UUID(tenant_id)).owed_nanos


@sync_to_async
def spend_is_right() -> bool:
    """What Redis counts of prepaid tenants is what the ledger says."""
    from tenants.billing.ledger.spend import spend_problems
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        return not list(spend_problems(lag_seconds=0))


@sync_to_async
def _top_up(tenant_id: str, nanos: int, reference: str) -> None:
    from tenants.billing.ledger import credit
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        credit.top_up(uuid.UUID(tenant_id), nanos, reference=reference)


@sync_to_async
def _make_tenant() -> tuple[str, str]:
    from tenants.access.api_keys import issue_api_key
    from tenants.isolation.scoping import operator_scope
    from tenants.models import Project, Tenant, Tier

    with operator_scope("chaos drills"):
        tenant = Tenant.objects.create(name="Short of credit", tier=Tier.objects.get(name="chaos"))
        return issue_api_key(Project.objects.create(tenant=tenant)).key, str(tenant.id)
