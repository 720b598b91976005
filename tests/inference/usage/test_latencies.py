"""How soon each tenant was answered: of the hours asked for, whichever sums have them."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inference.histograms import ERROR
from inference.usage.latencies import latency_by_tenant
from inference.usage.rollups import Use, add_to_rollups
from tenants.models import ApiKey
from tests.support.projects import make_key

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def served(key: ApiKey, at: datetime, ttft_ms: float | None = 100.0, **changes: Any) -> Use:
    fields: dict[str, Any] = {
        "tenant_id": str(key.tenant_id),
        "project_id": str(key.project_id),
        "api_key_id": str(key.pk),
        "tier": "premium",
        "pool": "p",
        "model": "m",
        "adapter": "",
        "arrived_ms": int(at.timestamp() * 1000),
        "outcome": "completed",
        "ttft_ms": ttft_ms,
        "queue_ms": ttft_ms and ttft_ms / 2,
    }
    return Use(**(fields | changes))


@pytest.fixture
def acme(operators_eye: None) -> ApiKey:
    return make_key("Acme")


@pytest.fixture
def globex(operators_eye: None) -> ApiKey:
    return make_key("Globex")


def test_tenants_stand_by_their_requests_with_their_own_percentiles(
    acme: ApiKey, globex: ApiKey
) -> None:
    ttfts = [float(ms) for ms in range(50, 250)]
    add_to_rollups(
        [
            *(served(acme, MIDNIGHT + n * 20 * timedelta(minutes=1), ms)
              for n, ms in enumerate(ttfts)),
            served(globex, MIDNIGHT, 9_000.0),
            served(globex, MIDNIGHT, outcome="", ttft_ms=None, wasted_tokens=4),
        ]
    )  # fmt: skip
    found = latency_by_tenant(MIDNIGHT, MIDNIGHT + 3 * DAY, most=5)
    assert [(row["tenant_id"], row["requests"]) for row in found.rows] == [
        (acme.tenant_id, 200),
        (globex.tenant_id, 1),
    ]
    assert found.tenants == 2
    for quantile in (0.5, 0.95, 0.99):
        exact = ttfts[math.ceil(quantile * len(ttfts)) - 1]
        ttft = found.rows[0]["ttft_histogram"].quantile_ms(quantile)
        assert ttft == pytest.approx(exact, rel=ERROR)
        queue = found.rows[0]["queue_histogram"].quantile_ms(quantile)
        assert queue == pytest.approx(exact / 2, rel=ERROR)
    assert found.rows[1]["ttft_histogram"].quantile_ms(0.5) == pytest.approx(9_000, rel=ERROR)
    only = latency_by_tenant(MIDNIGHT, MIDNIGHT + 3 * DAY, most=1)
    assert [row["requests"] for row in only.rows] == [200] and only.tenants == 2


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (MIDNIGHT, MIDNIGHT + 2 * DAY),
        (MIDNIGHT - 2 * HOUR, MIDNIGHT + DAY + 3 * HOUR),
        (MIDNIGHT - DAY + HOUR, MIDNIGHT),
        (MIDNIGHT + 5 * HOUR, MIDNIGHT + 9 * HOUR),
        (MIDNIGHT + 22 * HOUR, MIDNIGHT + 26 * HOUR),
    ],
)
def test_any_hours_are_those_and_no_others(acme: ApiKey, begin: datetime, end: datetime) -> None:
    arrivals = [MIDNIGHT + hour * HOUR for hour in range(-48, 72)]
    add_to_rollups([served(acme, at + timedelta(minutes=59)) for at in arrivals])
    (row,) = latency_by_tenant(begin, end, most=1).rows
    assert row["requests"] == row["ttft_histogram"].total == (end - begin) // HOUR


def test_it_is_narrowed_to_a_tenant_a_model_a_tier(acme: ApiKey, globex: ApiKey) -> None:
    add_to_rollups(
        [
            served(acme, MIDNIGHT, model="n"),
            served(acme, MIDNIGHT, tier="free"),
            served(globex, MIDNIGHT),
        ]
    )
    whole: Any = (MIDNIGHT, MIDNIGHT + DAY)
    by_tenant = latency_by_tenant(*whole, most=9, tenant_id=acme.tenant_id)
    assert [(row["tenant_id"], row["requests"]) for row in by_tenant.rows] == [(acme.tenant_id, 2)]
    narrowed: Any
    for narrowed in ({"model": "n"}, {"tier": "free"}):
        (row,) = latency_by_tenant(*whole, most=9, **narrowed).rows
        assert (row["tenant_id"], row["requests"]) == (acme.tenant_id, 1)
    assert latency_by_tenant(*whole, most=9, model="none").rows == []
