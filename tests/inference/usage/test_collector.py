"""The collector, against a real PostgreSQL and Redis."""

import math
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from django.db import (
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    connection,
)
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import (
    Outcome,
    Prices,
    TokenUsage,
    UsageEntry,
    WasteEntry,
)
from gpu_workers.protocol.policy import ModelPolicy
from gpu_workers.protocol.request_id import new_request_id
from inference.histograms import Histogram
from inference.models import (
    DailyUsage,
    UsageQuarantine,
    UsageRecord,
    UsageRollup,
    WastedAttempt,
)
from inference.operations.checks import sum_problems
from inference.usage import collector, ingest, quarantine, rows
from inference.usage.collector import UsageCollector, run_collectors
from inference.usage.ingest import record_entries
from inference.usage.partitions import month_of, months_present
from inference.usage.rows import StreamEntry
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.models import AccountName, LedgerEntry
from tenants.models import ApiKey, Project, Tenant, Tier
from tests.support.polling import eventually_sync
from tests.support.usage_entries import ARRIVED_MS, POOL, usage_entry

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]


@pytest.fixture
def redis(dispatch_redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(dispatch_redis_url) as client:
        client.flushall()
        client.sadd(keys.known_pools(), POOL)
        yield client


@pytest.fixture
def api_key(redis: Redis, operators_session: None) -> ApiKey:
    return make_key("Acme")


def make_key(tenant_name: str) -> ApiKey:
    ensure_default_tiers()
    tenant = Tenant.objects.create(name=tenant_name, tier=Tier.objects.get(name="premium"))
    project = Project.objects.create(tenant=tenant)
    return issue_api_key(project).record


def append(redis: Redis, *entries: UsageEntry, pool: str = POOL) -> None:
    for entry in entries:
        redis.xadd(keys.pool_usage(pool), {keys.USAGE_FIELD: encode(entry)})


def waiting(redis: Redis, pool: str = POOL) -> int:
    """What is left in the stream, and what was read and not acknowledged."""
    pending = cast(dict[str, int], redis.xpending(keys.pool_usage(pool), keys.USAGE_CONSUMER_GROUP))
    return redis.xlen(keys.pool_usage(pool)) + int(pending["pending"])


def test_an_entry_becomes_a_record_with_the_engines_counts(redis: Redis, api_key: ApiKey) -> None:
    entry = usage_entry(api_key)
    append(redis, entry)
    assert UsageCollector(redis).drain() == 1
    record = UsageRecord.objects.get()
    assert record.request_id == uuid.UUID(entry.request_id)
    assert (record.tenant_id, record.api_key_id) == (api_key.project.tenant_id, api_key.id)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (11, 4, 7)
    assert record.total_tokens == 18
    assert (record.outcome, record.finish_reason, record.api) == (
        "completed",
        "stop",
        "chat.completions",
    )
    assert record.arrived_at.timestamp() == pytest.approx(1_790_000_000.123)
    assert (record.queue_ms, record.ttft_ms) == (3, 21)
    assert waiting(redis) == 0


def test_an_entry_that_comes_twice_is_one_record(redis: Redis, api_key: ApiKey) -> None:
    entry = usage_entry(api_key)
    append(redis, entry, entry)
    UsageCollector(redis).drain()
    append(redis, entry)
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert waiting(redis) == 0


def test_what_an_operator_ran_once_more_is_nobodys_usage(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key, is_billed=False), usage_entry(api_key))
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert waiting(redis) == 0


def test_more_than_one_batch_is_drained(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "PAGE", 10)
    monkeypatch.setattr(collector, "PAGES_OF_A_BATCH", 2)
    append(redis, *(usage_entry(api_key) for _ in range(35)))
    assert UsageCollector(redis).drain() == 35
    assert UsageRecord.objects.count() == 35


def test_what_a_dead_consumer_left_unfinished_is_taken_over(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key), usage_entry(api_key))
    stream = keys.pool_usage(POOL)
    redis.xgroup_create(stream, keys.USAGE_CONSUMER_GROUP, id="0")
    redis.xreadgroup(keys.USAGE_CONSUMER_GROUP, "died", {stream: ">"})
    assert waiting(redis) == 4
    assert UsageCollector(redis).drain() == 2
    assert UsageRecord.objects.count() == 2
    assert waiting(redis) == 0


def test_a_commit_that_was_not_acknowledged_is_harmless(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between PostgreSQL's commit and Redis' acknowledgement."""
    append(redis, usage_entry(api_key))

    def die(_self: Redis, *_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Redis, "fcall", die)
        UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert waiting(redis) == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tenant_id": str(uuid.uuid4())}, "no API key"),
        ({"api_key_id": str(uuid.uuid4())}, "no API key"),
        ({"request_id": "not-a-uuid"}, "badly formed"),
        ({"pool": "another"}, "names the pool 'another'"),
        ({"finished_at_ms": 10**18}, "dated in the future"),
        ({"model": "m" * 300}, "too long"),
        ({"worker_id": "nul\0"}, "Unicode"),
        ({"usage": TokenUsage(prompt_tokens=-1)}, "check constraint"),
        ({"usage": TokenUsage(prompt_tokens=2**40)}, "out of range"),
        ({"prices": Prices(2**62, 2**62, 2**62, 10**9)}, "out of range"),
        ({"prices": Prices(10**18, 0, 0, 10**6)}, "it would cost 7000000000000000000"),
        ({"prices": Prices(-1, 0, 0, 1000)}, "check constraint"),
        ({"itl_p50_ms": math.nan}, "out of range: an inter-token latency"),
        ({"itl_p95_ms": math.inf}, "out of range: an inter-token latency"),
        ({"request_id": uuid.uuid4().hex}, "no UUID of version 7"),
        ({"request_id": new_request_id(ARRIVED_MS - 300_001)}, "far from the arrival"),
        ({"request_id": new_request_id(1), "arrived_at_ms": 1}, "months ago"),
        ({"finished_at_ms": ARRIVED_MS - 300_001}, "before it began"),
    ],
)
def test_an_entry_that_can_be_no_record_is_kept_in_quarantine(
    redis: Redis, api_key: ApiKey, changes: dict[str, Any], reason: str
) -> None:
    good, bad = usage_entry(api_key), usage_entry(api_key, **changes)
    append(redis, bad, good)
    assert UsageCollector(redis).drain() == 2
    assert UsageRecord.objects.get().request_id == uuid.UUID(good.request_id)
    row = UsageQuarantine.objects.get()
    assert bytes(row.entry) == encode(bad)
    assert reason in row.reason
    assert waiting(redis) == 0


def raise_for(
    monkeypatch: pytest.MonkeyPatch, bad: UsageEntry, module: Any, name: str, error: Exception
) -> None:
    """A mistake of ours that one entry alone shows, in a function that is told its id."""
    right, bad_id = getattr(module, name), str(uuid.UUID(bad.request_id))

    def wrong(*arguments: Any) -> Any:
        if bad_id in repr(arguments):
            raise error
        return right(*arguments)

    monkeypatch.setattr(module, name, wrong)


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        (rows, "_record_row", TypeError("the model is a secret")),
        (ingest, "_charges", KeyError("a secret")),
        (ingest, "_charges", IntegrityError("a secret")),
    ],
)
def test_an_entry_that_breaks_the_intake_stops_no_others(
    redis: Redis,
    api_key: ApiKey,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    error: Exception,
) -> None:
    entries = [usage_entry(api_key, prices=PRICED) for _ in range(7)]
    append(redis, *entries)
    with monkeypatch.context() as patch:
        raise_for(patch, entries[4], module, name, error)
        assert UsageCollector(redis).drain() == 7
    assert UsageRecord.objects.count() == 6
    assert revenue(api_key) == 6 * COST_NANOS == DailyUsage.objects.get().cost_nanos
    row = UsageQuarantine.objects.get()
    assert bytes(row.entry) == encode(entries[4])
    assert type(error).__name__ in row.reason
    assert "secret" not in row.reason
    assert waiting(redis) == 0
    assert quarantine.retry([]) == (1, 0)
    assert revenue(api_key) == 7 * COST_NANOS


def test_what_breaks_the_intake_stays_in_quarantine_beside_what_does_not(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [usage_entry(api_key, model=f"model-{number}") for number in range(3)]
    append(redis, *entries)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "decode_usage", lambda data: 1 / 0)
        UsageCollector(redis).drain()
    assert UsageQuarantine.objects.count() == 3
    with monkeypatch.context() as patch:
        raise_for(patch, entries[1], rows, "_record_row", AttributeError())
        assert quarantine.retry([]) == (2, 1)
    assert "AttributeError" in UsageQuarantine.objects.get().reason


@pytest.mark.parametrize(
    "outage", [OperationalError("gone"), InterfaceError("closed"), ProgrammingError("no table")]
)
def test_what_is_wrong_with_the_database_puts_nothing_in_quarantine(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch, outage: Exception
) -> None:
    append(redis, usage_entry(api_key), usage_entry(api_key))
    stop, tries = threading.Event(), 0

    def fail(*_: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            stop.set()
        raise outage

    with monkeypatch.context() as patch:
        patch.setattr(collector, "MIN_BACKOFF_SECONDS", 0.01)
        patch.setattr(ingest, "add_to_rollups", fail)
        UsageCollector(redis).run(stop)
    assert tries == 2, "each time once, not for each half"
    assert not UsageQuarantine.objects.exists()
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 2


def test_bytes_of_another_version_are_kept_in_quarantine(redis: Redis, api_key: ApiKey) -> None:
    redis.xadd(keys.pool_usage(POOL), {keys.USAGE_FIELD: b"\xc1 no msgpack"})
    redis.xadd(keys.pool_usage(POOL), {"other": b"field"})
    UsageCollector(redis).drain()
    first, second = UsageQuarantine.objects.order_by("id")
    assert bytes(first.entry) == b"\xc1 no msgpack"
    assert b"other" in bytes(second.entry)
    assert waiting(redis) == 0


def test_one_tenants_key_cannot_be_billed_to_another(redis: Redis, api_key: ApiKey) -> None:
    other = make_key("Globex")
    append(redis, usage_entry(api_key, tenant_id=str(other.project.tenant_id)))
    UsageCollector(redis).drain()
    assert not UsageRecord.objects.exists()
    assert UsageQuarantine.objects.count() == 1


def test_requests_that_expired_in_a_pool_without_workers_are_on_record(
    redis: Redis, api_key: ApiKey
) -> None:
    model = ModelPolicy(
        name="cold", pool="cold", context_tokens=1, created_at=0, owned_by="penstock"
    )
    redis.hset(keys.policy_models(), "cold", encode(model))
    entry = usage_entry(
        api_key, pool="cold", outcome=Outcome.EXPIRED, attempt=0, worker_id=None, ttft_ms=None
    )
    append(redis, entry, pool="cold")
    UsageCollector(redis).drain()
    assert UsageRecord.objects.get().outcome == "expired"


class TestRunning:
    """The collectors as in a process: in threads here, with connections of their own."""

    @pytest.fixture
    def running_collector(self, redis: Redis, api_key: ApiKey) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=run_collectors, args=(stop,))
        thread.start()
        yield
        stop.set()
        thread.join(timeout=10)
        assert not thread.is_alive()

    @pytest.mark.usefixtures("running_collector")
    def test_a_new_pool_is_found_while_running(self, redis: Redis, api_key: ApiKey) -> None:
        redis.sadd(keys.known_pools(), "brand-new")
        append(redis, usage_entry(api_key, pool="brand-new"), pool="brand-new")
        eventually_sync(lambda: UsageRecord.objects.filter(pool="brand-new").exists(), 2.0)

    @pytest.mark.usefixtures("running_collector")
    def test_a_redis_that_came_back_empty_is_read_again(
        self, redis: Redis, api_key: ApiKey
    ) -> None:
        append(redis, usage_entry(api_key))
        eventually_sync(lambda: UsageRecord.objects.count() == 1)
        redis.flushall()
        redis.sadd(keys.known_pools(), POOL)
        append(redis, usage_entry(api_key))
        eventually_sync(lambda: UsageRecord.objects.count() == 2)

    def test_an_outage_of_postgresql_loses_nothing(
        self,
        redis: Redis,
        api_key: ApiKey,
        monkeypatch: pytest.MonkeyPatch,
        running_collector: None,
    ) -> None:
        refused = threading.Event()
        is_down = threading.Event()
        is_down.set()

        def sometimes(entries: list[StreamEntry]) -> None:
            if is_down.is_set():
                refused.set()
                raise OperationalError("the database is gone")
            record_entries(entries)

        monkeypatch.setattr(collector, "record_entries", sometimes)
        append(redis, usage_entry(api_key), usage_entry(api_key))
        assert refused.wait(timeout=5)
        assert UsageRecord.objects.count() == 0
        is_down.clear()
        eventually_sync(lambda: UsageRecord.objects.count() == 2)
        eventually_sync(lambda: waiting(redis) == 0)


# Money and sums -----------------------------------------------------------------------------------

PRICED = Prices(1_000_000, 500_000, 2_000_000, 900)
# 7 new, 4 cached and 7 completion tokens, at nine tenths.
COST_NANOS = 20_700


def waste_entry(api_key: ApiKey, **changes: Any) -> WasteEntry:
    entry = WasteEntry(
        request_id=new_request_id(ARRIVED_MS),
        attempt=1,
        tenant_id=str(api_key.project.tenant_id),
        project_id=str(api_key.project_id),
        api_key_id=str(api_key.id),
        tier="premium",
        pool=POOL,
        model="penstock-demo",
        adapter="",
        worker_id="w#1",
        completion_tokens=5,
        reason="worker_lost",
        ended_at_ms=ARRIVED_MS + 900,
    )
    return msgspec.structs.replace(entry, **changes)


def waste(redis: Redis, *entries: WasteEntry) -> None:
    for entry in entries:
        redis.xadd(keys.pool_usage(POOL), {keys.WASTE_FIELD: encode(entry)})


def revenue(api_key: ApiKey) -> int:
    entries = LedgerEntry.objects.filter(tenant_id=api_key.tenant_id, account=AccountName.REVENUE)
    return -sum(entry.nanos for entry in entries)


def test_a_record_says_its_prices_and_what_it_cost(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key, prices=PRICED, adapter="poems"))
    UsageCollector(redis).drain()
    record = UsageRecord.objects.get()
    assert record.cost_nanos == COST_NANOS == revenue(api_key)
    assert (record.price_prompt, record.price_cached) == (1_000_000, 500_000)
    assert (record.price_completion, record.price_permille) == (2_000_000, 900)
    assert record.adapter == "poems"
    (line,) = LedgerEntry.objects.filter(account=AccountName.REVENUE)
    assert (line.model, line.day, line.requests) == ("penstock-demo", date(2026, 9, 21), 1)


def test_an_entry_that_comes_again_is_neither_charged_nor_counted_again(
    redis: Redis, api_key: ApiKey
) -> None:
    entry, other = usage_entry(api_key, prices=PRICED), usage_entry(api_key, prices=PRICED)
    lost = waste_entry(api_key)
    for _ in range(3):
        append(redis, entry, other, entry)
        waste(redis, lost, lost)
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
    midnight = 1_790_035_200_000
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
        ("21T23", 1),
        ("22T00", 2),
        ("22T01", 1),
    ]
    days = DailyUsage.objects.order_by("day").values_list("day__day", "requests")
    assert list(days) == [(21, 1), (22, 3)]


def test_a_wasted_attempt_is_on_record_beside_its_request(redis: Redis, api_key: ApiKey) -> None:
    entry = usage_entry(api_key, attempt=2)
    append(redis, entry)
    waste(redis, waste_entry(api_key, request_id=entry.request_id))
    UsageCollector(redis).drain()
    attempt = WastedAttempt.objects.get()
    assert attempt.request_id == UsageRecord.objects.get().request_id
    assert (attempt.attempt, attempt.completion_tokens, attempt.reason) == (1, 5, "worker_lost")
    assert (UsageRollup.objects.get().requests, UsageRollup.objects.get().wasted_tokens) == (1, 5)
    assert waiting(redis) == 0


def test_waste_of_nobodys_key_is_kept_in_quarantine(redis: Redis, api_key: ApiKey) -> None:
    waste(redis, waste_entry(api_key, project_id=str(uuid.uuid4())))
    UsageCollector(redis).drain()
    assert "no API key" in UsageQuarantine.objects.get().reason
    assert not WastedAttempt.objects.exists() and not UsageRollup.objects.exists()


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


def test_collectors_that_take_each_others_entries_charge_each_once(
    redis: Redis, api_key: ApiKey, dispatch_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes over at once what another has read and not acknowledged yet."""
    owners = [api_key, make_key("Globex"), make_key("Initech")]
    append(redis, *(usage_entry(key, prices=PRICED) for _ in range(100) for key in owners))
    begin = threading.Barrier(3)

    def collect() -> None:
        try:
            with Redis.from_url(dispatch_redis_url) as own:
                begin.wait()
                UsageCollector(own).drain()
        finally:
            connection.close()

    monkeypatch.setattr(collector, "PAGE", 10)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(collect) for _ in range(3)]:
            done.result(timeout=60)
    assert waiting(redis) == 0
    assert UsageRecord.objects.count() == 300
    assert sum(DailyUsage.objects.values_list("requests", flat=True)) == 300
    assert [revenue(key) for key in owners] == [100 * COST_NANOS] * 3
    assert list(ledger_problems()) == list(sum_problems()) == []


@pytest.mark.parametrize("good", [30, 0], ids=["some are bad", "all are bad"])
def test_two_collectors_with_the_same_bad_entries_do_not_wait_for_each_other_for_ever(
    api_key: ApiKey, good: int
) -> None:
    """What cannot be recorded parts a batch into halves, which are recorded one after the other."""
    made = [usage_entry(api_key, prices=PRICED) for _ in range(good)]
    for place in range(0, 36, 4):
        made.insert(place, usage_entry(api_key, model="m" * 300))
    batch = [
        StreamEntry(pool=POOL, stream_id=f"{number}-0", data=encode(entry))
        for number, entry in enumerate(made)
    ]
    begin = threading.Barrier(2)

    def collect(entries: list[StreamEntry]) -> None:
        try:
            begin.wait()
            for _ in range(3):
                record_entries(entries)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(collect, order) for order in (batch, batch[::-1])]:
            done.result(timeout=60)
    assert UsageRecord.objects.count() == good
    assert UsageQuarantine.objects.count() == 9
    assert revenue(api_key) == good * COST_NANOS


@given(data=st.data())
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
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
    records, hours, days, ledger = _sums()
    assert records == hours == days
    assert records[-1] == ledger == revenue(api_key)
    assert records[0] > before[0][0]


def _sums() -> tuple[Any, ...]:
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "wasted_tokens", "cost_nanos")
    records = [UsageRecord.objects.count(), *_summed(UsageRecord.objects.all(), *names)]
    hours = _summed(UsageRollup.objects.all(), "requests", *names)
    days = _summed(DailyUsage.objects.all(), "requests", *names)
    (ledger,) = _summed(LedgerEntry.objects.filter(account=AccountName.REVENUE), "nanos")
    return records, hours, days, -ledger


def _summed(records: Any, *names: str) -> list[int]:
    sums = records.aggregate(**{f"sum_{name}": Sum(name) for name in names})
    return [int(sums[f"sum_{name}"] or 0) for name in names]
