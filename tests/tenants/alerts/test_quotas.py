"""Alerts at shares of a quota, over the counters that admission really keeps."""

import asyncio
from datetime import UTC, datetime

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import packed
from inference.admission.reservations import ReservationRequest, Reservations
from tenants.access.api_keys import issue_api_key
from tenants.alerts.quotas import raise_quota_alerts
from tenants.models import ApiKey, Project, Quota, QuotaAlert
from tenants.webhooks.models import Event

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NEXT_DAY = datetime(2026, 12, 1, 0, 30, tzinfo=UTC)


@pytest.fixture
def api_key(policy_redis: Redis, acme: Project) -> ApiKey:
    return issue_api_key(acme).record


def use(url: str, key: ApiKey, *, tokens: int, nanos: int = 0, at: datetime = NOON) -> None:
    """What a request of the key reserves."""

    async def reserve() -> None:
        async with AsyncRedis.from_url(url) as redis:
            reservations = Reservations(redis, clock=lambda: int(at.timestamp() * 1000))
            await reservations.load_functions()
            request = ReservationRequest(
                key_id=str(key.id),
                project_id=str(key.project_id),
                tokens=tokens,
                nanos=nanos,
                pool="pool",
                prices=Prices(0, 0, 0, 1000),
            )
            request_id = f"{at.isoformat()}-{tokens}-{nanos}"
            answer = await reservations.reserve(str(key.tenant_id), request_id, request, packed([]))
            assert answer.refusing is None

    asyncio.run(reserve())


def raised() -> list[tuple[str, str, int, int]]:
    alerts = QuotaAlert.objects.select_related("quota").order_by("period", "percent")
    return [(alert.quota.scope, alert.period, alert.percent, alert.used) for alert in alerts]


@pytest.mark.parametrize("place", ["tenant", "project", "key"])
def test_each_share_is_told_once_in_a_period(
    dispatch_redis_url: str, api_key: ApiKey, place: str
) -> None:
    Quota.objects.create(
        tenant_id=api_key.tenant_id,
        project=api_key.project if place == "project" else None,
        api_key=api_key if place == "key" else None,
        limit=LimitName.TOKENS_PER_DAY,
        value=100,
    )
    assert raise_quota_alerts(NOON) == 0
    use(dispatch_redis_url, api_key, tokens=50)
    assert raise_quota_alerts(NOON) == 1
    assert raise_quota_alerts(NOON) == 0
    use(dispatch_redis_url, api_key, tokens=49)
    assert raise_quota_alerts(NOON) == 1
    use(dispatch_redis_url, api_key, tokens=1)
    assert raise_quota_alerts(NOON) == 1
    day = "2026-11-30"
    assert raised() == [(place, day, 50, 50), (place, day, 80, 99), (place, day, 100, 100)]
    assert raise_quota_alerts(NEXT_DAY) == 0
    use(dispatch_redis_url, api_key, tokens=60, at=NEXT_DAY)
    assert raise_quota_alerts(NEXT_DAY) == 1
    assert raised()[-1] == (place, "2026-12-01", 50, 60)


def test_a_quota_is_told_of_at_its_own_shares_and_what_is_told_goes_out(
    dispatch_redis_url: str, api_key: ApiKey
) -> None:
    quota = Quota.objects.create(
        tenant_id=api_key.tenant_id,
        project=api_key.project,
        limit=LimitName.SPEND_PER_MONTH,
        value=1000,
        is_hard=False,
        alert_percents=[30, 120],
    )
    use(dispatch_redis_url, api_key, tokens=1, nanos=900)
    assert raise_quota_alerts(NOON) == 1
    use(dispatch_redis_url, api_key, tokens=1, nanos=301)
    assert raise_quota_alerts(NOON) == 1
    assert raise_quota_alerts(NOON) == 0
    first, second = Event.objects.order_by("created_at")
    assert (first.type, first.tenant_id) == ("quota.threshold_reached", api_key.tenant_id)
    assert first.data == {
        "quota_id": str(quota.pk),
        "scope": "project",
        "project": {"id": str(api_key.project_id), "name": "default"},
        "api_key": None,
        "limit": "spend_per_month",
        "is_hard": False,
        "period": "2026-11",
        "percent": 30,
        "quota_nanos": 1000,
        "used_nanos": 900,
    }
    assert (second.data["percent"], second.data["used_nanos"]) == (120, 1201)


def test_spend_of_a_day_is_told_in_nano_dollars(dispatch_redis_url: str, api_key: ApiKey) -> None:
    Quota.objects.create(tenant_id=api_key.tenant_id, limit=LimitName.SPEND_PER_DAY, value=1000)
    use(dispatch_redis_url, api_key, tokens=1, nanos=500)
    assert raise_quota_alerts(NOON) == 1
    data = Event.objects.get().data
    assert (data["period"], data["quota_nanos"], data["used_nanos"]) == ("2026-11-30", 1000, 500)


def test_a_quota_without_shares_is_told_of_to_nobody(
    dispatch_redis_url: str, api_key: ApiKey
) -> None:
    Quota.objects.create(
        tenant_id=api_key.tenant_id, limit=LimitName.TOKENS_PER_DAY, value=1, alert_percents=[]
    )
    use(dispatch_redis_url, api_key, tokens=50)
    assert raise_quota_alerts(NOON) == 0
    assert not Event.objects.exists()


def test_spend_and_tokens_of_a_month_are_told_apart(
    dispatch_redis_url: str, api_key: ApiKey
) -> None:
    for limit, value in ((LimitName.SPEND_PER_MONTH, 1000), (LimitName.TOKENS_PER_MONTH, 1000)):
        Quota.objects.create(tenant_id=api_key.tenant_id, limit=limit, value=value, is_hard=False)
    use(dispatch_redis_url, api_key, tokens=10, nanos=800)
    assert raise_quota_alerts(NOON) == 2
    (spend, _) = QuotaAlert.objects.select_related("quota").order_by("percent")
    assert (spend.quota.limit, spend.period, spend.used) == ("spend_per_month", "2026-11", 800)


def test_another_tenants_use_alerts_nobody_else(
    dispatch_redis_url: str, api_key: ApiKey, globex: Project
) -> None:
    Quota.objects.create(tenant_id=globex.tenant_id, limit=LimitName.TOKENS_PER_DAY, value=1)
    Quota.objects.create(tenant_id=globex.tenant_id, limit=LimitName.REQUESTS_PER_MINUTE, value=1)
    use(dispatch_redis_url, api_key, tokens=10)
    assert raise_quota_alerts(NOON) == 0
