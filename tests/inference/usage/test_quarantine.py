"""Entries that can be no rows are kept in quarantine, and stop no others."""

import math
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, connection
from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Prices, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from inference.models import DailyUsage, UsageQuarantine, UsageRecord, UsageRollup, WastedAttempt
from inference.usage import ingest, quarantine, rows
from inference.usage.collector import UsageCollector
from inference.usage.ingest import record_entries
from inference.usage.rows import StreamEntry
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


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": str(uuid.uuid4())},
        {"api_key_id": str(uuid.uuid4())},
        {"request_id": "not-a-uuid"},
        {"pool": "another"},
        {"finished_at_ms": 10**18},
        {"model": "m" * 300},
        {"worker_id": "nul\0"},
        {"usage": TokenUsage(prompt_tokens=-1)},
        {"usage": TokenUsage(prompt_tokens=2**40)},
        {"prices": Prices(2**62, 2**62, 2**62, 10**9)},
        {"prices": Prices(10**18, 0, 0, 10**6)},
        {"prices": Prices(-1, 0, 0, 1000)},
        {"itl_p50_ms": math.nan},
        {"itl_p95_ms": math.inf},
        {"request_id": uuid.uuid4().hex},
        {"request_id": new_request_id(ARRIVED_MS - 300_001)},
        {"request_id": new_request_id(1), "arrived_at_ms": 1},
        {"finished_at_ms": ARRIVED_MS - 300_001},
    ],
)
def test_an_entry_that_can_be_no_record_is_kept_in_quarantine(
    redis: Redis, api_key: ApiKey, changes: dict[str, Any]
) -> None:
    good, bad = usage_entry(api_key), usage_entry(api_key, **changes)
    append(redis, bad, good)
    assert UsageCollector(redis).drain() == 2
    assert UsageRecord.objects.get().request_id == uuid.UUID(good.request_id)
    row = UsageQuarantine.objects.get()
    assert bytes(row.entry) == encode(bad)
    assert row.reason and "unforeseen" not in row.reason, "a rule refused it, no mistake of ours"
    assert waiting(redis) == 0


def raise_for(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, bad: str, error: Exception
) -> None:
    """A mistake of ours that one entry alone shows: in a function whose arguments name it."""
    right = getattr(module, name)

    def wrong(*arguments: Any, **options: Any) -> Any:
        if bad in repr(arguments):
            raise error
        return right(*arguments, **options)

    monkeypatch.setattr(module, name, wrong)


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        (rows, "actual", TypeError("the model is a secret")),
        (ingest, "charge_usage", KeyError("a secret")),
        (ingest, "charge_usage", IntegrityError("a secret")),
    ],
)
def test_an_entry_that_breaks_the_ingest_stops_no_others(
    redis: Redis,
    api_key: ApiKey,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    error: Exception,
) -> None:
    entries = [usage_entry(api_key, prices=PRICED) for _ in range(7)]
    usage = TokenUsage(prompt_tokens=11, cached_tokens=4, completion_tokens=7, reasoning_tokens=3)
    entries[4] = usage_entry(api_key, prices=PRICED, model="bad", usage=usage)
    append(redis, *entries)
    with monkeypatch.context() as patch:
        bad = "reasoning_tokens=3" if name == "actual" else "model='bad'"
        raise_for(patch, module, name, bad, error)
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


def test_what_breaks_the_ingest_stays_in_quarantine_beside_what_does_not(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [usage_entry(api_key, model=f"model-{number}", prices=PRICED) for number in range(3)]
    append(redis, *entries)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "decode_usage", lambda data: 1 / 0)
        UsageCollector(redis).drain()
    assert UsageQuarantine.objects.count() == 3
    with monkeypatch.context() as patch:
        raise_for(patch, ingest, "charge_usage", "model='model-1'", AttributeError())
        assert quarantine.retry([]) == (2, 1)
    assert "AttributeError" in UsageQuarantine.objects.get().reason


def test_bytes_of_another_version_are_kept_in_quarantine(redis: Redis, api_key: ApiKey) -> None:
    redis.xadd(keys.pool_usage(POOL), {stream_fields.USAGE_FIELD: b"\xc1 no msgpack"})
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


def test_waste_of_nobodys_key_is_kept_in_quarantine(redis: Redis, api_key: ApiKey) -> None:
    append(redis, waste_entry(api_key, project_id=str(uuid.uuid4())))
    UsageCollector(redis).drain()
    assert UsageQuarantine.objects.count() == 1
    assert not WastedAttempt.objects.exists() and not UsageRollup.objects.exists()


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
