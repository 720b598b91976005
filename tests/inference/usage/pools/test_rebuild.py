"""Sums by pool and of errors, from the records again: what an upgrade and a spoilt sum need."""

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, models
from redis import Redis

from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.request_id import new_request_id
from inference.histograms import Histogram
from inference.models import (
    DailyPoolUsage,
    DailyTenantUsage,
    ErrorRollup,
    PoolTenantUsage,
    PoolUsage,
    UsageRollup,
)
from inference.operations.sum_checks import pool_sum_problems
from inference.usage.collector import UsageCollector
from inference.usage.pools.rebuild import are_complete, rebuild_sums
from inference.usage.rollups import OWED
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Tier
from tests.support.commands import run
from tests.support.projects import make_key
from tests.support.usage_entries import ARRIVED_MS, PRICED, append, usage_entry, waste_entry

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
SUMS: tuple[type[models.Model], ...] = (
    PoolUsage,
    DailyPoolUsage,
    DailyTenantUsage,
    PoolTenantUsage,
    ErrorRollup,
)
BEGIN = datetime.fromtimestamp(ARRIVED_MS / 1000, UTC).replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def recorded(redis: Redis, operators_session: None) -> list[ApiKey]:
    """Usage of three hours on two days, of two tenants, with errors and waste."""
    owners = [make_key("Acme"), make_key("Globex")]
    for hour in (0, 1, 30):
        for number, outcome in enumerate(Outcome):
            ms = ARRIVED_MS + hour * 3_600_000 + number
            entry = usage_entry(
                owners[number % 2],
                request_id=new_request_id(ms),
                arrived_at_ms=ms,
                finished_at_ms=ms + 1000,
                outcome=outcome,
                prices=PRICED,
                attempt=2,
                service_class="code" if number % 2 else "interactive",
                error_code="worker_lost" if outcome is Outcome.FAILED else None,
                ttft_ms=10_000 if hour else 20,
                itl_p50_ms=5.0,
                itl_p95_ms=10.0 * number,
                queue_ms=40,
            )
            lost = waste_entry(owners[number % 2], request_id=entry.request_id)
            append(redis, entry, lost)
    UsageCollector(redis).drain()
    return owners


def all_sums() -> list[list[dict[str, Any]]]:
    return [sorted(model._default_manager.values(), key=str) for model in SUMS]


def test_what_is_rebuilt_is_what_was_added_up(recorded: list[ApiKey]) -> None:
    kept = all_sums()
    assert all(kept)
    for model in SUMS:
        model._default_manager.all().delete()
    assert list(rebuild_sums()) == [BEGIN + timedelta(hours=hour) for hour in range(30, -1, -1)]
    assert all_sums() == kept
    assert list(pool_sum_problems()) == []


def test_an_upgraded_database_is_told_to_rebuild_and_is_complete_then(
    recorded: list[ApiKey],
) -> None:
    for model in SUMS:
        model._default_manager.all().delete()
    # What came after the upgrade.
    PoolUsage.objects.all().delete()
    assert not are_complete(BEGIN)
    (problem,) = pool_sum_problems()
    assert "rebuild_usage_sums" in problem
    assert run("rebuild_usage_sums", "--json")["hours_rebuilt"] == 31
    assert are_complete(BEGIN) and are_complete(BEGIN - timedelta(days=365))
    assert list(pool_sum_problems()) == []


def test_an_upgrade_sums_up_the_days_of_tenants(recorded: list[ApiKey]) -> None:
    migration = importlib.import_module("inference.migrations.0013_daily_tenant_usage")
    known = {each.name for each in DailyTenantUsage._meta.fields} - {"pk", *OWED}
    days = DailyTenantUsage.objects.order_by("tenant_id", "day", "tier").values(*known)
    kept = list(days)
    DailyTenantUsage.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(migration.FILL)
    with operator_scope("test"):
        assert len(kept) == 4 and list(days.all()) == kept


def test_a_rebuilding_that_was_cut_short_is_not_taken_for_complete(
    recorded: list[ApiKey],
) -> None:
    for model in SUMS:
        model._default_manager.all().delete()
    newest_first: Iterator[datetime] = rebuild_sums()
    next(newest_first)
    newest_first.close()  # type: ignore[attr-defined]
    assert are_complete(BEGIN + timedelta(hours=30)) and not are_complete(BEGIN)


def test_sums_know_queue_targets_and_codes(recorded: list[ApiKey]) -> None:
    tier = Tier.objects.get(name="premium")
    first = PoolUsage.objects.filter(hour=BEGIN)
    assert {row.service_class for row in first} == {"code", "interactive"}
    assert sum(row.requests for row in first) == 5
    assert sum((row.queue_histogram.total for row in first), 0) == 5
    assert sum(row.ttft_in_time or 0 for row in first) == 5
    in_time = sum(10.0 * number <= tier.inter_token_target_ms for number in range(5))
    assert sum(row.itl_in_time or 0 for row in first) == in_time
    late = UsageRollup.objects.filter(hour__gt=BEGIN)
    assert sum(row.ttft_in_time or 0 for row in late) == 0
    codes = ErrorRollup.objects.filter(hour=BEGIN).values_list("code", "requests")
    assert sorted(codes) == [("unknown", 1), ("unknown", 1), ("worker_lost", 1)]


def test_what_old_rows_do_not_know_stays_unknown(redis: Redis, recorded: list[ApiKey]) -> None:
    UsageRollup.objects.update(queue_histogram=None, ttft_in_time=None, itl_in_time=None)
    append(redis, usage_entry(recorded[0], queue_ms=7))
    UsageCollector(redis).drain()
    row = UsageRollup.objects.get(hour=BEGIN, tenant=recorded[0].tenant_id)
    assert (row.requests, row.ttft_in_time, row.queue_histogram) == (4, None, Histogram())
