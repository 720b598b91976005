"""Costs that are dealt out to tenants once a day: to the nano-dollar as if nothing was kept."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from inference.models import DealtCost, DealtDay, PoolUsage
from inference.usage.pools.dealt_days import deal_out_days, dealt_cost_problems
from inference.usage.pools.margins import By, Margins, margins
from inference.usage.pools.rebuild import rebuild_hour
from inference.usage.rollups import Use, add_to_rollups
from tenants.billing.invoicing.usage_source import usage_cutoff
from tenants.billing.models import PoolCost, PoolHour
from tenants.billing.pricing import price_book
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.support.projects import make_key

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def midnight() -> datetime:
    """When this is read; three days are over. What GPUs cost cannot be entered for the past."""
    today = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + 4 * DAY


def deal_out() -> int:
    return deal_out_days(now=midnight())


def use(key: ApiKey, at: datetime, pool: str, tokens: int) -> None:
    add_to_rollups(
        [
            Use(
                tenant_id=str(key.tenant_id), project_id=str(key.project_id),
                api_key_id=str(key.id), tier="premium", pool=pool, model="m", adapter="",
                arrived_ms=int(at.timestamp() * 1000), outcome="completed", prompt_tokens=tokens,
                completion_tokens=tokens // 3, cost_nanos=tokens * 7,
            )
        ]
    )  # fmt: skip


def by_tenant(days: int = 4) -> Margins:
    return margins(midnight() - days * DAY, midnight() + DAY, By.TENANT)


def kept() -> list[datetime]:
    return [
        datetime.combine(day, datetime.min.time(), UTC)
        for day in DealtDay.objects.order_by("day").values_list("day", flat=True)
    ]


@pytest.fixture
def three() -> list[ApiKey]:
    """Keys of three tenants, who used two pools of odd costs in the last three days and today."""
    keys = [make_key(f"Tenant {number}") for number in range(3)]
    begin = midnight() - 3 * DAY
    for pool, micros in (("a", 2_345_677), ("b", 999_983)):
        price_book.enter(PoolCost(pool=pool, micros_per_gpu_hour=micros, effective_from=begin))
        for hour in range(0, 75, 5):
            PoolHour.objects.create(pool=pool, hour=begin + hour * HOUR, worker_ms=3_599_999)
    for number, key in enumerate(keys):
        for hour in range(number, 75, 5):
            use(key, begin + hour * HOUR, "ab"[hour % 2], 1000 + 37 * hour)
        use(key, begin + 5 * HOUR, "a", 11 + number)
    return keys


def test_what_is_kept_is_what_would_be_dealt_out(three: list[ApiKey]) -> None:
    before = by_tenant()
    assert deal_out() == 3
    assert kept() == [midnight() - days * DAY for days in (3, 2, 1)]
    assert by_tenant() == before
    assert deal_out() == 0


def test_a_part_of_a_kept_day_is_dealt_out_anew(three: list[ApiKey]) -> None:
    begin, end = midnight() - 3 * DAY + 6 * HOUR, midnight() - DAY + 7 * HOUR
    before = margins(begin, end, By.TENANT)
    assert sum(row.dealt_nanos for row in before.rows) > 0
    deal_out()
    assert margins(begin, end, By.TENANT) == before


def test_usage_that_comes_late_counts_at_once_and_is_kept_later(three: list[ApiKey]) -> None:
    deal_out()
    dealt = {row.of: row for row in by_tenant().rows}
    use(three[0], midnight() - 2 * DAY + HOUR, "a", 5_000)
    late = by_tenant()
    changed = {row.of: row for row in late.rows}
    late_tenant = str(three[0].tenant_id)
    assert changed[late_tenant].tokens == dealt[late_tenant].tokens + 5_000 + 5_000 // 3
    assert deal_out() == 1
    assert by_tenant() == late


def test_an_hours_cost_that_changes_is_dealt_out_anew(three: list[ApiKey]) -> None:
    deal_out()
    before = sum(row.dealt_nanos for row in by_tenant().rows)
    hour = PoolHour.objects.filter(pool="a", hour=midnight() - 3 * DAY + 5 * HOUR)
    assert hour.update(worker_ms=7_200_000) == 1
    after = by_tenant()
    assert sum(row.dealt_nanos for row in after.rows) > before
    assert deal_out() == 1
    assert by_tenant() == after


def test_a_day_on_which_nothing_happened_is_kept_once(three: list[ApiKey]) -> None:
    day = midnight() - 2 * DAY
    PoolUsage.objects.filter(hour__gte=day, hour__lt=day + DAY).delete()
    PoolHour.objects.filter(hour__gte=day, hour__lt=day + DAY).delete()
    assert deal_out() == 3
    assert deal_out() == 0


def test_a_rebuilt_hour_has_its_day_dealt_out_anew(three: list[ApiKey]) -> None:
    deal_out()
    with operator_scope("test"):
        usage_cutoff()
        rebuild_hour(midnight() - 2 * DAY)
    assert midnight() - 2 * DAY not in kept()


def test_what_is_spoilt_is_found(three: list[ApiKey]) -> None:
    deal_out()
    assert list(dealt_cost_problems()) == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE inference_dealtcost SET dealt_nanos = dealt_nanos + 1")
    tenants = DealtCost.objects.values("tenant_id").distinct().count()
    found = list(dealt_cost_problems())
    assert len(found) == 3 * tenants
    assert all("rebuild_usage_sums" in each for each in found)
