"""What is used of limits, as admission counts: each key, project and tenant its own."""

import asyncio

import pytest
from redis.asyncio import Redis as AsyncRedis

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import LimitScope, ScopedLimit, packed
from inference.admission.reservations import ReservationRequest, Reservations
from inference.operations.limit_use import open_sequences, use_of_quotas, use_of_tier
from tenants.access.api_keys import issue_api_key
from tenants.access.projects import add_project
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Quota
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
MINUTES = packed(
    [
        ScopedLimit(LimitScope.KEY, LimitName.REQUESTS_PER_MINUTE, 100),
        ScopedLimit(LimitScope.TIER, LimitName.REQUESTS_PER_MINUTE, 100),
    ]
)


def reserve(url: str, key: ApiKey, *, tokens: int, sequences: int) -> None:
    async def run() -> None:
        async with AsyncRedis.from_url(url) as redis:
            reservations = Reservations(redis)
            await reservations.load_functions()
            request = ReservationRequest(
                key_id=str(key.id),
                project_id=str(key.project_id),
                tokens=tokens,
                nanos=tokens * 1000,
                pool="pool",
                prices=Prices(0, 0, 0, 1000),
            )
            tenant_id = str(key.tenant_id)
            await reservations.reserve(
                tenant_id, str(key.id), request, MINUTES, sequences=sequences
            )

    asyncio.run(run())


def test_each_owner_is_told_its_own_use(houses: TwoTenants, dispatch_redis_url: str) -> None:
    tenant, first = houses.acme.tenant, houses.acme.key
    with operator_scope("test"):
        other = issue_api_key(add_project(tenant, name="web")).record
        idle = issue_api_key(first.project).record
        limits = {
            "tenant": Quota(limit=LimitName.TOKENS_PER_MONTH),
            "project": Quota(limit=LimitName.TOKENS_PER_DAY, project=other.project),
            "key": Quota(limit=LimitName.SPEND_PER_DAY, api_key=first),
            "idle": Quota(limit=LimitName.REQUESTS_PER_MINUTE, api_key=idle),
            "busy": Quota(limit=LimitName.REQUESTS_PER_MINUTE, api_key=first),
        }
        for quota in limits.values():
            quota.tenant, quota.value = tenant, 10**6
    reserve(dispatch_redis_url, first, tokens=400, sequences=3)
    reserve(dispatch_redis_url, other, tokens=70, sequences=1)
    with operator_scope("test"):
        found = use_of_quotas(tenant, list(limits.values()))
        assert found is not None
        used = {name: status.used for name, status in zip(limits, found, strict=True)}
        assert used == {"tenant": 470, "project": 70, "key": 400_000, "idle": 0, "busy": 1}
        assert [status.resets_at_ms is None for status in found] == [False] * 3 + [True, False]
        assert (open_sequences(first), open_sequences(other), open_sequences(idle)) == (3, 1, 0)
        assert use_of_quotas(tenant, []) == []
        of_tier, statuses = use_of_tier(tenant)
        assert statuses is not None
        assert {each.limit.name: each.used for each in statuses} == {
            LimitName.REQUESTS_PER_MINUTE: 2,
            LimitName.CONCURRENT_REQUESTS: 4,
        }
        assert [each.limit for each in statuses] == of_tier
        # Of what another tenant uses nothing is told.
        theirs = use_of_tier(houses.globex.tenant)[1]
        assert theirs is not None and not any(each.used for each in theirs)
