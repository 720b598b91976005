"""Requests of a customer, as the collector takes them in."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec

from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Api, Outcome, Prices, TokenUsage, UsageEntry
from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from inference.usage_intake import record_entries
from inference.usage_rows import StreamEntry
from tenants.default_tiers import ensure_default_tiers
from tenants.models import ApiKey, Project, Tenant, Tier

POOL = "invoiced"
# A month that is over, and the one before it.
OCTOBER = date(2026, 10, 1)
SEPTEMBER = date(2026, 9, 1)
AFTER_OCTOBER = datetime(2026, 11, 1, 7, tzinfo=UTC)
NOON = datetime(2026, 10, 15, 12, tzinfo=UTC)
# Nano-dollars: 10 prompt tokens at 1,000 pico-dollars, 4 of them cached at 500, and 5 completion
# tokens at 2,001.
COST = 18_005 // 1000


@dataclass(frozen=True, kw_only=True)
class Customer:
    tenant: Tenant
    project: Project
    key: ApiKey


def make_customer(name: str, tier: str = "premium") -> Customer:
    ensure_default_tiers()
    tenant = Tenant.objects.create(name=name, tier=Tier.objects.get(name=tier))
    project = Project.objects.create(tenant=tenant, name="web")
    return Customer(tenant=tenant, project=project, key=ApiKey.objects.issue(project).record)


def entry_of(customer: Customer, at: datetime = NOON, **changes: Any) -> UsageEntry:
    entry = UsageEntry(
        request_id=new_request_id(int(at.timestamp() * 1000)),
        tenant_id=str(customer.tenant.id),
        project_id=str(customer.project.id),
        api_key_id=str(customer.key.id),
        tier="premium",
        pool=POOL,
        model="penstock-demo",
        api=Api.CHAT_COMPLETIONS,
        stream=True,
        attempt=1,
        worker_id="w#1",
        outcome=Outcome.COMPLETED,
        finish_reason="stop",
        error_code=None,
        usage=TokenUsage(prompt_tokens=10, cached_tokens=4, completion_tokens=5),
        arrived_at_ms=int(at.timestamp() * 1000),
        finished_at_ms=int((at + timedelta(seconds=1)).timestamp() * 1000),
        queue_ms=1,
        ttft_ms=20,
        prices=Prices(1000, 500, 2001, 1000),
        itl_p50_ms=5.0,
        itl_p95_ms=9.0,
    )
    return msgspec.structs.replace(entry, **changes)


def use(customer: Customer, at: datetime = NOON, *, times: int = 1, **changes: Any) -> int:
    """So many requests; returns what they cost, in nano-dollars."""
    entries = [entry_of(customer, at, **changes) for _ in range(times)]
    record_entries(
        StreamEntry(pool=POOL, stream_id=f"{number}-1", data=encode(entry))
        for number, entry in enumerate(entries)
    )
    ids = [entry.request_id for entry in entries]
    costs = UsageRecord.objects.filter(request_id__in=ids).values_list("cost_nanos", flat=True)
    assert len(costs) == times, "not all of it was recorded"
    return sum(costs)
