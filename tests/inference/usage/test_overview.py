"""How a tenant has fared beside the days before, and where its month is heading."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from gpu_workers.protocol.policy import LimitName
from inference.histograms import ERROR
from inference.models import DailyTenantUsage, UsageRollup
from inference.usage.invoice_source import RolledUpUsage
from inference.usage.overview import Days, Kept, figures, standing
from inference.usage.rollups import Use, add_to_rollups
from tenants.billing.models import Promise
from tenants.models import ApiKey, Quota, Tenant, Tier
from tests.support.projects import make_key

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
# A Wednesday.
TODAY = date(2026, 11, 18)
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.fixture
def key(operators_eye: None) -> ApiKey:
    return make_key("Acme")


def used(key: ApiKey, day: date, *, nanos: int = 0, hour: int = 7, **changes: Any) -> Use:
    moment = datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
    fields: dict[str, Any] = {
        "tenant_id": str(key.tenant_id),
        "project_id": str(key.project_id),
        "api_key_id": str(key.id),
        "model": "m",
        "adapter": "",
        "tier": "premium",
        "pool": "p",
        "arrived_ms": int(moment.timestamp() * 1000),
        "outcome": "completed",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost_nanos": nanos,
    }
    return Use(**(fields | changes))


@pytest.mark.parametrize(
    ("first", "last", "before"),
    [
        ("2026-11-01", "2026-11-18", ("2026-10-01", "2026-10-18")),
        ("2026-03-01", "2026-03-31", ("2026-02-01", "2026-02-28")),
        ("2026-11-10", "2026-11-16", ("2026-11-03", "2026-11-09")),
        ("2026-11-01", "2026-12-01", ("2026-10-01", "2026-10-31")),
    ],
)
def test_days_are_compared_with_the_same_days_before(
    first: str, last: str, before: tuple[str, str]
) -> None:
    found = Days(date.fromisoformat(first), date.fromisoformat(last)).before
    assert tuple(map(str, found)) == before


def test_figures_are_those_of_the_days(key: ApiKey) -> None:
    latencies = [float(number) for number in range(1, 201)]
    add_to_rollups(
        [
            *(
                used(key, TODAY, nanos=3, ttft_ms=ms, itl_ms=ms, itl_p95_ms=ms, queue_ms=ms)
                for ms in latencies
            ),
            *(used(key, TODAY, outcome=end) for end in ("failed", "expired", "refused")),
            used(key, TODAY, outcome="cancelled"),
            used(key, TODAY - timedelta(days=1), nanos=10**9),
        ]
    )
    found = figures(Days(TODAY, TODAY), now=NOW)
    assert (found.cost_nanos, found.requests, found.errors, found.tokens) == (600, 204, 3, 204 * 15)
    for name in ("ttft", "inter_token", "queue"):
        for quantile, exact in (("p50", 100), ("p95", 190), ("p99", 198)):
            told = found.latencies_ms[name][quantile]
            assert told == pytest.approx(exact, rel=ERROR + 0.005)


def test_attainment_is_what_invoices_count_of_the_hours_so_far(key: ApiKey) -> None:
    tier = Tier.objects.get(name="premium")
    late, soon = tier.ttft_target_ms + 1.0, float(tier.ttft_target_ms)
    add_to_rollups(
        [
            *(used(key, TODAY, hour=7, ttft_ms=soon, owed=True) for _ in range(75)),
            *(used(key, TODAY, hour=7, ttft_ms=late, owed=True) for _ in range(25)),
            *(used(key, TODAY, hour=8, outcome="failed", owed=True) for _ in range(50)),
            *(used(key, TODAY, hour=8, owed=True) for _ in range(50)),
            *(used(key, TODAY, hour=9, ttft_ms=late, outcome="failed") for _ in range(100)),
        ]
    )
    found = figures(Days(TODAY, TODAY), now=NOW).attainment
    by_promise = {each.promise: each for each in found}
    ttft, uptime = by_promise[Promise.TTFT], by_promise[Promise.UPTIME]
    # A quarter of an hour, and half of one, of the twelve of this day so far.
    assert (ttft.measured.kept, ttft.measured.total, ttft.is_kept) == (11.75, 12, False)
    assert (uptime.measured.kept, uptime.measured.total) == (11.5, 12)
    assert (ttft.tier, ttft.model) == ("premium", "m")
    assert Promise.INTER_TOKEN not in by_promise, "nothing had two tokens"
    month = Days.of_month(TODAY)
    (invoiced,) = RolledUpUsage().attainment([key.tenant_id], month.first)
    whole = Days(month.first, date(2026, 11, 30))
    (shown,) = (
        each.measured
        for each in figures(whole, now=datetime(2026, 12, 2, tzinfo=UTC)).attainment
        if each.promise is Promise.UPTIME
    )
    assert shown == invoiced.uptime


def test_what_was_not_counted_then_is_unknown_and_not_missed(key: ApiKey) -> None:
    add_to_rollups(
        used(key, TODAY - timedelta(days=1), ttft_ms=20, queue_ms=5, owed=True) for _ in range(200)
    )
    DailyTenantUsage.objects.update(queue_histogram=None)
    UsageRollup.objects.update(requests_owed=None, failed_owed=None, ttft_owed=None)
    days = Days(TODAY - timedelta(days=1), TODAY)
    found = figures(days, now=NOW)
    assert found.latencies_ms["queue"] == {"p50": None, "p95": None, "p99": None}
    assert found.attainment == []
    add_to_rollups(used(key, TODAY, ttft_ms=20, owed=True) for _ in range(100))
    kept: list[Kept] = [
        each for each in figures(days, now=NOW).attainment if each.promise is Promise.TTFT
    ]
    assert [(each.measured.kept, each.measured.total) for each in kept] == [(36, 36)]


# Where the month is heading -----------------------------------------------------------------------


def forecast(key: ApiKey) -> int | None:
    return standing(Tenant.objects.get(id=key.tenant_id), TODAY).forecast_nanos


def test_a_month_is_forecast_by_the_same_weekdays_of_four_weeks(key: ApiKey) -> None:
    window = [TODAY - timedelta(days=number) for number in range(1, 29)]
    # More on weekdays, and another week each.
    costs = {
        day: (100 if day.weekday() < 5 else 10) * (1 + index // 7)
        for index, day in enumerate(window)
    }
    add_to_rollups([used(key, day, nanos=nanos) for day, nanos in costs.items()])
    add_to_rollups([used(key, TODAY - timedelta(days=40), nanos=10**9)])
    spent = sum(nanos for day, nanos in costs.items() if day.month == 11)
    # Of a weekday 100, 200, 300 and 400 in four weeks; from the 18th to the 30th nine of them.
    assert forecast(key) == spent + 9 * 250 + 4 * 25
    add_to_rollups([used(key, TODAY, nanos=100)])
    assert forecast(key) == spent + 9 * 250 + 4 * 25, "today goes on"
    add_to_rollups([used(key, TODAY, nanos=900)])
    assert forecast(key) == spent + 1000 + 8 * 250 + 4 * 25


def test_days_before_the_first_usage_do_not_count_as_free(key: ApiKey) -> None:
    assert forecast(key) is None
    add_to_rollups([used(key, TODAY, nanos=100)])
    assert forecast(key) is None, "a day that runs says nothing of others"
    add_to_rollups([used(key, TODAY - timedelta(days=days), nanos=30) for days in (1, 2)])
    assert forecast(key) == 60 + 100 + 12 * 30


def test_the_forecast_stands_against_the_budget(key: ApiKey) -> None:
    tenant = Tenant.objects.get(id=key.tenant_id)
    add_to_rollups([used(key, TODAY - timedelta(days=1), nanos=100)])
    assert not standing(tenant, TODAY).is_over_budget
    Quota.objects.create(tenant=tenant, limit=LimitName.SPEND_PER_MONTH.value, value=1_400)
    found = standing(tenant, TODAY)
    assert (found.spent_nanos, found.forecast_nanos, found.is_over_budget) == (100, 1_400, False)
    add_to_rollups([used(key, TODAY - timedelta(days=1), nanos=1)])
    assert standing(tenant, TODAY).is_over_budget
