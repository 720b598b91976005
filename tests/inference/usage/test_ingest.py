"""Entries become records, once, with what they cost and what they add to the sums."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from inference.histograms import Histogram
from inference.models import (
    DailyTenantUsage,
    DailyUsage,
    UsageQuarantine,
    UsageRecord,
    UsageRollup,
    WastedAttempt,
)
from inference.usage.collector import UsageCollector
from inference.usage.ingest import record_entries
from inference.usage.partitions import moment, month_of, months_present
from inference.usage.rows import StreamEntry
from tenants.billing.ledger.waiting import LONGEST_WAIT, post_due
from tenants.billing.models import AccountName, LedgerEntry
from tenants.models import ApiKey
from tests.support.projects import make_key
from tests.support.usage_entries import (
    ARRIVED_MS,
    COST_NANOS,
    POOL,
    PRICED,
    append,
    revenue,
    usage_entry,
    waiting,
    waste_entry,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operators_session")]


def test_a_record_says_its_prices_and_what_it_cost(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key, prices=PRICED, adapter="poems"))
    UsageCollector(redis).drain()
    record = UsageRecord.objects.get()
    assert record.cost_nanos == COST_NANOS == revenue(api_key)
    assert (record.price_prompt, record.price_cached) == (1_000_000, 500_000)
    assert (record.price_completion, record.price_permille) == (2_000_000, 900)
    assert record.adapter == "poems"
    waited = datetime.now(UTC) + LONGEST_WAIT
    assert post_due(waited) == 1
    assert revenue(api_key) == COST_NANOS
    (line,) = LedgerEntry.objects.filter(account=AccountName.REVENUE)
    assert (line.model, line.day, line.requests) == ("penstock-demo", moment(ARRIVED_MS).date(), 1)


def test_an_entry_that_comes_again_is_neither_charged_nor_counted_again(
    redis: Redis, api_key: ApiKey
) -> None:
    entry, other = usage_entry(api_key, prices=PRICED), usage_entry(api_key, prices=PRICED)
    lost = waste_entry(api_key)
    for _ in range(3):
        append(redis, entry, other, entry)
        append(redis, lost, lost)
        UsageCollector(redis).drain()
    assert revenue(api_key) == 2 * COST_NANOS
    for rollup in (UsageRollup.objects.get(), DailyUsage.objects.get()):
        assert (rollup.requests, rollup.completed, rollup.wasted_tokens) == (2, 2, 5)
        assert (rollup.prompt_tokens, rollup.cached_tokens, rollup.completion_tokens) == (22, 8, 14)
        assert rollup.cost_nanos == 2 * COST_NANOS
        assert rollup.ttft_histogram == Histogram.of([21, 21])
        assert rollup.duration_histogram == Histogram.of([1333, 1333])


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.EXPIRED])
def test_what_was_never_run_is_counted_and_costs_nothing(
    redis: Redis, api_key: ApiKey, outcome: Outcome
) -> None:
    append(redis, usage_entry(api_key, prices=PRICED, outcome=outcome, ttft_ms=None))
    UsageCollector(redis).drain()
    rollup = UsageRollup.objects.get()
    assert (rollup.requests, getattr(rollup, outcome), rollup.cost_nanos) == (1, 1, 0)
    assert rollup.ttft_histogram == rollup.duration_histogram == Histogram()
    assert revenue(api_key) == 0


def test_hours_and_days_are_those_of_the_arrival(redis: Redis, api_key: ApiKey) -> None:
    day_ms = 24 * 3_600_000
    midnight = ARRIVED_MS // day_ms * day_ms
    for ms in (midnight - 1, midnight, midnight + 3_599_999, midnight + 3_600_000):
        append(
            redis,
            usage_entry(
                api_key, request_id=new_request_id(ms), arrived_at_ms=ms, finished_at_ms=ms + 5
            ),
        )
    UsageCollector(redis).drain()
    hours = UsageRollup.objects.order_by("hour").values_list("hour", "requests")
    assert [(f"{hour:%dT%H}", requests) for hour, requests in hours] == [
        ("04T23", 1),
        ("05T00", 2),
        ("05T01", 1),
    ]
    days = DailyUsage.objects.order_by("day").values_list("day__day", "requests")
    assert list(days) == [(4, 1), (5, 3)]


def test_a_wasted_attempt_is_on_record_beside_its_request(redis: Redis, api_key: ApiKey) -> None:
    entry = usage_entry(api_key, attempt=2)
    append(redis, entry)
    append(redis, waste_entry(api_key, request_id=entry.request_id))
    UsageCollector(redis).drain()
    attempt = WastedAttempt.objects.get()
    assert attempt.request_id == UsageRecord.objects.get().request_id
    assert (attempt.attempt, attempt.completion_tokens, attempt.reason) == (1, 5, "worker_lost")
    assert (UsageRollup.objects.get().requests, UsageRollup.objects.get().wasted_tokens) == (1, 5)
    assert waiting(redis) == 0


def test_an_entry_of_a_month_long_past_finds_its_partition(redis: Redis, api_key: ApiKey) -> None:
    ms = int((datetime.now(UTC) - timedelta(days=300)).timestamp() * 1000)
    append(
        redis,
        usage_entry(api_key, request_id=new_request_id(ms), arrived_at_ms=ms, finished_at_ms=ms),
    )
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert month_of(datetime.fromtimestamp(ms / 1000, UTC)) in months_present()


def test_two_collectors_with_the_same_entries_record_each_once(
    redis: Redis, api_key: ApiKey
) -> None:
    """A stream that was restored from an old copy hands out what is being recorded."""
    others = [make_key(f"Tenant {number}") for number in range(5)]
    batch = [
        StreamEntry(
            pool=POOL,
            stream_id=f"{number}-0",
            data=encode(usage_entry(key, prices=PRICED, adapter=f"adapter-{number % 7}")),
        )
        for number in range(40)
        for key in others
    ]

    def collect(entries: list[StreamEntry]) -> None:
        try:
            record_entries(entries)
        finally:
            connection.close()

    threads = [
        threading.Thread(target=collect, args=(order,))
        for order in (batch, batch[::-1], batch[::3] + batch)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert UsageRecord.objects.count() == 200
    assert sum(DailyUsage.objects.values_list("requests", flat=True)) == 200
    assert sum(map(revenue, others)) == 200 * COST_NANOS
    assert not UsageQuarantine.objects.exists()


@given(data=st.data())
def test_rollups_and_ledger_are_the_sums_of_the_records(
    redis: Redis, api_key: ApiKey, data: st.DataObject
) -> None:
    before = _sums()
    tokens = st.integers(0, 10**6)
    price = st.integers(0, 10**9)
    for _ in range(data.draw(st.integers(1, 3))):
        append(
            redis,
            *(
                usage_entry(
                    api_key,
                    outcome=data.draw(st.sampled_from(Outcome)),
                    usage=TokenUsage(
                        prompt_tokens=data.draw(tokens),
                        cached_tokens=data.draw(tokens),
                        completion_tokens=data.draw(tokens),
                    ),
                    prices=Prices(data.draw(price), data.draw(price), data.draw(price), 1000),
                    model=data.draw(st.sampled_from(["one", "two"])),
                    wasted_tokens=data.draw(tokens),
                )
                for _ in range(data.draw(st.integers(1, 5)))
            ),
        )
        UsageCollector(redis).drain()
    records, hours, days, tenants, ledger = _sums()
    assert records == hours == days == tenants
    assert records[-1] == ledger == revenue(api_key)
    assert records[0] > before[0][0]


def _sums() -> tuple[Any, ...]:
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "wasted_tokens", "cost_nanos")
    records = [UsageRecord.objects.count(), *_summed(UsageRecord.objects.all(), *names)]
    hours = _summed(UsageRollup.objects.all(), "requests", *names)
    days = _summed(DailyUsage.objects.all(), "requests", *names)
    tenants = _summed(DailyTenantUsage.objects.all(), "requests", *names)
    post_due(datetime.now(UTC) + LONGEST_WAIT)
    (ledger,) = _summed(LedgerEntry.objects.filter(account=AccountName.REVENUE), "nanos")
    return records, hours, days, tenants, -ledger


def _summed(records: Any, *names: str) -> list[int]:
    sums = records.aggregate(**{f"sum_{name}": Sum(name) for name in names})
    return [int(sums[f"sum_{name}"] or 0) for name in names]
