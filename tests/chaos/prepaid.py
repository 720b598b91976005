"""Prepaid tenants of the money drill: one that has enough, and one whose credit runs out."""

import uuid
from dataclasses import dataclass, field

from asgiref.sync import sync_to_async

from gpu_workers.protocol import keys
from tests.chaos.load import Load
from tests.chaos.stack import MODEL, Stack

AMPLE_NANOS = 10**12
# About sixty answers, which are over before the first Redis is lost.
SHORT_NANOS = 13_000_000
STREAMS = 5


@sync_to_async
def give_credit(tenant_id: str, nanos: int) -> None:
    """From now on it may spend this and no more."""
    from tenants.billing import credit
    from tenants.models import BillingMode, Tenant
    from tenants.scoping import operator_scope

    with operator_scope("chaos drills"):
        tenant = Tenant.objects.get(id=tenant_id)
        credit.top_up(tenant.id, nanos, reference="drill")
        tenant.bill(BillingMode.PREPAID)


@dataclass(kw_only=True)
class ShortOfCredit:
    """A tenant that asks on after its credit is spent. After a lost Redis it may spend again what
    was open or not recorded yet (docs/adr/0014): of each loss, in `not_recorded`."""

    tenant_id: str
    load: Load
    not_recorded: list[int] = field(default_factory=list)

    async def note_loss(self, stack: Stack) -> None:
        """Just before Redis is killed."""
        counted = await stack.redis.hgetall(keys.tenant_balance(self.tenant_id))
        spent = sum(int(counted.get(name, 0)) for name in (b"settled", b"reserved"))
        self.not_recorded.append(max(0, spent - await _posted(self.tenant_id)))

    async def overdraft(self) -> tuple[int, int]:
        """What it owes, and how much of that is not allowed; in nano-dollars. Its clients go on
        between the note of a loss and the loss: each may have a request more open by then."""
        owed, open_nanos = await owed_by(self.tenant_id), STREAMS * await _dearest(self.tenant_id)
        return owed, max(0, owed - sum(max(noted, open_nanos) for noted in self.not_recorded))


async def short_of_credit(stack: Stack) -> ShortOfCredit:
    key, tenant_id = await _make_tenant()
    await give_credit(tenant_id, SHORT_NANOS)
    load = Load(stack.ports, key, MODEL, streams=STREAMS)
    return ShortOfCredit(tenant_id=tenant_id, load=load)


@sync_to_async
def owed_by(tenant_id: str) -> int:
    from tenants.billing.balances import balance_of
    from tenants.scoping import operator_scope

    with operator_scope("chaos drills"):
        return balance_of(uuid.UUID(tenant_id)).owed_nanos


@sync_to_async
def _dearest(tenant_id: str) -> int:
    """What its dearest request has cost, in nano-dollars."""
    from django.db.models import Max

    from inference.models import UsageRecord
    from tenants.scoping import operator_scope

    with operator_scope("chaos drills"):
        records = UsageRecord.objects.filter(tenant=uuid.UUID(tenant_id))
        return int(records.aggregate(nanos=Max("cost_nanos"))["nanos"] or 0)


@sync_to_async
def spend_is_right() -> bool:
    """What Redis counts of prepaid tenants is what the ledger says."""
    from tenants.billing.balances import spend_problems
    from tenants.scoping import operator_scope

    with operator_scope("chaos drills"):
        return not list(spend_problems())


@sync_to_async
def _posted(tenant_id: str) -> int:
    from tenants.billing.balances import posted_usage
    from tenants.scoping import operator_scope

    with operator_scope("chaos drills"):
        return posted_usage([uuid.UUID(tenant_id)]).get(uuid.UUID(tenant_id), 0)


@sync_to_async
def _make_tenant() -> tuple[str, str]:
    from tenants.models import ApiKey, Project, Tenant, Tier
    from tenants.scoping import operator_scope

    with operator_scope("chaos drills"):
        tenant = Tenant.objects.create(name="Short of credit", tier=Tier.objects.get(name="chaos"))
        return ApiKey.objects.issue(Project.objects.create(tenant=tenant)).key, str(tenant.id)
