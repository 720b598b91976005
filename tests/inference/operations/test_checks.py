"""fsck of usage: it finds what was spoilt on purpose, and nothing where nothing was."""

import io
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Outcome, Prices
from gpu_workers.protocol.request_id import new_request_id
from inference import tasks
from inference.admission.reservations import Reservation, ReservationRequest
from inference.models import UsageQuarantine, UsageRecord
from inference.operations import checks
from inference.usage.collector import UsageCollector
from inference.usage.ingest import record_entries
from inference.usage.partitions import month_of, months_later, months_present
from inference.usage.pools.rebuild import rebuild_sums
from inference.usage.rows import StreamEntry
from tenants.fsck import run_checks
from tenants.models import ApiKey
from tenants.policy import writer
from tests.support.commands import refused, run
from tests.support.projects import make_key
from tests.support.usage_entries import (
    ARRIVED_MS,
    COST_NANOS,
    POOL,
    PRICED,
    append,
    usage_entry,
    waste_entry,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]


@pytest.fixture
def api_key(redis: Redis, operators_session: None) -> ApiKey:
    """With usage of two days, models and tenants, all kinds of ends, and waste."""
    key, other = make_key("Acme"), make_key("Globex")
    day_ms = 86_400_000
    for number, outcome in enumerate(Outcome):
        for owner in (key, other):
            ms = ARRIVED_MS + number % 2 * day_ms
            entry = usage_entry(
                owner,
                request_id=new_request_id(ms),
                arrived_at_ms=ms,
                finished_at_ms=ms + 900,
                outcome=outcome,
                attempt=2,
                prices=PRICED,
                wasted_tokens=number,
                model=f"m{number % 2}",
                itl_p50_ms=None,
                ttft_ms=None if number % 2 else 17,
            )
            lost = waste_entry(
                owner, request_id=entry.request_id, model=entry.model, ended_at_ms=ms + 500
            )
            append(redis, entry, lost)
    UsageCollector(redis).drain()
    writer.rebuild_policy()
    return key


def problems() -> list[tuple[str, str]]:
    """Each check that found something, and what it says."""
    return [(finding.check, finding.problem) for finding in run_checks()]


def test_where_nothing_is_wrong_nothing_is_found(api_key: ApiKey) -> None:
    assert UsageRecord.objects.count() == 10
    assert problems() == []


@pytest.mark.parametrize(
    ("spoil", "check", "facts"),
    [
        (
            "UPDATE inference_usagerollup SET requests = requests + 1",
            "usage sums",
            ["requests", "3 by hourly rollups"],
        ),
        (
            "UPDATE inference_dailyusage SET cost_nanos = cost_nanos + 1",
            "usage sums",
            ["cost_nanos", "daily rollups"],
        ),
        ("DELETE FROM inference_usagerollup", "usage sums", ["0 by hourly rollups"]),
        (
            "UPDATE inference_usagerecord SET cost_nanos = cost_nanos + 1",
            "usage sums",
            ["cost_nanos"],
        ),
        (
            "UPDATE inference_usagerecord SET completion_tokens = 8",
            "usage sums",
            ["completion_tokens"],
        ),
        ("DELETE FROM inference_wastedattempt", "usage sums", ["wasted_tokens"]),
        (
            "UPDATE inference_poolusage SET prompt_tokens = prompt_tokens + 1",
            "usage sums of pools",
            [POOL, "prompt_tokens", "66 by records", "67 by hourly sums of pools"],
        ),
        (
            "UPDATE inference_dailypoolusage SET wasted_tokens = 0",
            "usage sums of pools",
            ["wasted_tokens", "0 by daily sums of pools"],
        ),
        (
            "UPDATE inference_pooltenantusage SET cost_nanos = cost_nanos + 1",
            "usage sums of pools",
            [POOL, "tenant", "cost_nanos", "by sums of pools by tenant"],
        ),
        (
            "UPDATE inference_errorrollup SET code = 'other' WHERE code = 'unknown'",
            "usage sums of pools",
            ["error other", "0 by records", "1 by sums of errors"],
        ),
        (
            "UPDATE inference_dailyusage SET completed = completed + 1",
            "usage sums",
            ["completed", "1 by records", "1 by hourly rollups", "2 by daily rollups"],
        ),
        (
            "UPDATE inference_dailytenantusage SET completed = completed + 1",
            "usage sums",
            ["tier", "completed", "1 by hourly rollups", "2 by daily sums of tenants"],
        ),
        (
            "UPDATE inference_dailytenantusage SET down_by_hour = down_by_hour + 1",
            "usage sums",
            ["tier", "down_by_hour"],
        ),
        (
            "UPDATE inference_usagerecord SET arrived_at = arrived_at + interval '1 day'",
            "usage sums",
            ["requests", "0 by records"],
        ),
        (
            "DELETE FROM inference_usagerecord WHERE outcome = 'completed'",
            "usage attempts",
            ["attempt 1"],
        ),
        (
            "UPDATE inference_usagerecord SET attempt = 0 WHERE outcome = 'completed'",
            "usage attempts",
            ["attempt 1", "attempt 0"],
        ),
    ],
)
def test_what_differs_is_told_by_tenant_model_and_day(
    api_key: ApiKey, spoil: str, check: str, facts: list[str]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(spoil)
        assert cursor.rowcount > 0
    found = problems()
    assert any(
        finding == check and all(fact in problem for fact in facts) for finding, problem in found
    ), found
    with pytest.raises(CommandError):
        call_command("fsck", stdout=io.StringIO())


def test_a_charge_that_the_ledger_lacks_is_found(api_key: ApiKey) -> None:
    """As if the ledger had not been posted to: records and sums are raised by hand."""
    with connection.cursor() as cursor:
        for table in ("usagerecord", "usagerollup", "dailyusage"):
            cursor.execute(
                f"UPDATE inference_{table} SET cost_nanos = cost_nanos + 5"  # noqa: S608
                " WHERE tenant_id = %s AND cost_nanos > 0 AND model = 'm1'",
                [api_key.tenant_id],
            )
    list(rebuild_sums())
    ((check, problem),) = problems()
    assert check == "usage sums"
    for fact in (api_key.tenant_id, "m1", COST_NANOS + 5, COST_NANOS):
        assert str(fact) in problem


def test_a_month_without_a_partition_is_found() -> None:
    month = month_of(datetime.now(UTC))
    assert list(checks.partition_problems()) == []
    then = datetime.now(UTC) + timedelta(days=300)
    missing = [month_of(then), months_later(month_of(then), 1)]
    for problem, name in zip(checks.partition_problems(then), missing, strict=True):
        assert f"{name:%Y-%m}" in problem
    assert month in months_present()


def test_the_task_makes_the_months_to_come() -> None:
    tasks.make_usage_partitions()
    assert tasks.make_usage_partitions() == 0


def test_a_request_that_is_on_record_and_open_is_found(redis: Redis, api_key: ApiKey) -> None:
    request_id = UsageRecord.objects.order_by("request_id")[0].request_id.hex
    redis.zadd(
        keys.pool_open_requests(POOL), {request_id: ARRIVED_MS, new_request_id(): ARRIVED_MS}
    )
    ((check, problem),) = problems()
    assert check == "usage open requests"
    assert request_id in problem and POOL in problem


def test_a_reservation_that_nobody_settled_is_found(redis: Redis, api_key: ApiKey) -> None:
    prices = Prices(1, 1, 1, 1000)
    request = ReservationRequest(str(api_key.id), str(api_key.project_id), 1, 1, POOL, prices)
    tenant = str(api_key.tenant_id)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    open_one, lost, fresh = (new_request_id() for _ in range(3))
    redis.sadd(keys.tenants_with_reservations(), tenant)
    for request_id, at_ms in ((open_one, ARRIVED_MS), (lost, ARRIVED_MS), (fresh, now_ms)):
        row = msgspec.msgpack.encode(Reservation(at_ms, "000", request))
        redis.hset(keys.tenant_reservations(tenant), request_id, row)
    redis.zadd(keys.pool_open_requests(POOL), {open_one: ARRIVED_MS})
    ((check, problem),) = problems()
    assert check == "usage reservations"
    assert lost in problem


def test_a_reservation_that_cannot_be_read_is_found_and_stops_no_check(
    redis: Redis, api_key: ApiKey
) -> None:
    tenant = str(api_key.tenant_id)
    redis.sadd(keys.tenants_with_reservations(), tenant)
    redis.hset(keys.tenant_reservations(tenant), "odd", msgspec.msgpack.encode([1, "000", []]))
    ((check, problem),) = problems()
    assert check == "usage reservations"
    assert "odd" in problem and keys.tenant_reservations(tenant) in problem


# Quarantine -------------------------------------------------------------------------------------


def quarantine(*arguments: str) -> Any:
    return run("usage_quarantine", *arguments)


@pytest.fixture
def too_early(redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> str:
    """An entry of a worker whose clock is ahead. -> its request id"""
    ahead_ms = int((datetime.now(UTC) + timedelta(minutes=10)).timestamp() * 1000)
    entry = usage_entry(
        api_key,
        request_id=new_request_id(ahead_ms),
        arrived_at_ms=ahead_ms,
        finished_at_ms=ahead_ms,
        prices=PRICED,
    )
    append(redis, entry)
    UsageCollector(redis).drain()
    return entry.request_id


def test_what_is_in_quarantine_is_a_finding(too_early: str) -> None:
    ((check, problem),) = problems()
    assert check == "usage quarantine"
    assert UsageQuarantine.objects.get().reason in problem


def test_an_entry_is_ingested_once_its_cause_is_mended(
    too_early: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = quarantine("list")
    assert row["reason"] == UsageQuarantine.objects.get().reason
    assert quarantine("retry") == {"recorded": 0, "left": 1}
    later = datetime.now(UTC) + timedelta(minutes=20)
    monkeypatch.setattr("inference.usage.ingest.record_time", lambda: later)
    assert quarantine("retry", str(row["id"])) == {"recorded": 1, "left": 0}
    assert UsageRecord.objects.filter(request_id=uuid.UUID(too_early)).exists()
    assert quarantine("list") == []
    monkeypatch.undo()
    assert problems() == []


def test_two_entries_of_the_same_id_in_a_stream_are_both_kept(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that was restored from an old copy gives ids out again."""
    ahead_ms = int((datetime.now(UTC) + timedelta(minutes=10)).timestamp() * 1000)
    entries = [
        StreamEntry(
            pool=POOL,
            stream_id="1-1",
            data=encode(
                usage_entry(
                    api_key,
                    request_id=new_request_id(ahead_ms),
                    arrived_at_ms=ahead_ms,
                    finished_at_ms=ahead_ms,
                )
            ),
        )
        for _ in range(2)
    ]
    before = UsageRecord.objects.count()
    for entry in (*entries, *entries):
        record_entries([entry])
    assert UsageQuarantine.objects.count() == 2
    assert quarantine("retry") == {"recorded": 0, "left": 2}
    later = datetime.now(UTC) + timedelta(minutes=20)
    monkeypatch.setattr("inference.usage.ingest.record_time", lambda: later)
    assert quarantine("retry") == {"recorded": 2, "left": 0}
    assert UsageRecord.objects.count() == before + 2


def test_an_entry_is_discarded_by_its_id_alone(too_early: str) -> None:
    number = UsageQuarantine.objects.get().id
    for wrong in ([], ["999999"], [str(number), "999999"]):
        assert refused("usage_quarantine", "discard", *wrong)
    assert UsageQuarantine.objects.filter(id=number).exists()
    assert quarantine("discard", str(number)) == {"discarded": 1}
    assert not UsageQuarantine.objects.exists()
