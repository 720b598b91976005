"""What engines counted, what attempts reported and what was billed: fsck finds each planted
difference, and none where a worker died."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import DatabaseError, connection
from psycopg.errors import InsufficientPrivilege
from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Outcome, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import EngineTokenCounter, UsageEntry, WasteEntry
from inference import models
from inference.models import UsageQuarantine, UsageRecord, Worker
from inference.operations.checks import attempt_problems, generated_problems, token_counter_problems
from inference.usage import quarantine
from inference.usage.collector import UsageCollector
from inference.usage.partitions import make_partitions, month_of, months_later
from tenants.isolation.scoping import tenant_scope
from tenants.models import ApiKey
from tests.support.fleet import worker_info
from tests.support.usage_entries import POOL, usage_entry, waste_entry

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
NOW = datetime.now(UTC)
ARRIVED = NOW - timedelta(minutes=30)
ONE, TWO = "w#1", "w#2"


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def after(seconds: float) -> int:
    """Unix milliseconds, so long after the arrival of all requests here."""
    return ms(ARRIVED + timedelta(seconds=seconds))


@pytest.fixture
def redis(redis: Redis) -> Redis:
    """With somewhere to record what arrived just before a month's end."""
    make_partitions({months_later(month_of(NOW), -1)})
    return redis


def report(redis: Redis, *entries: UsageEntry | WasteEntry | EngineTokenCounter) -> None:
    fields = {
        UsageEntry: stream_fields.USAGE_FIELD,
        WasteEntry: stream_fields.WASTE_FIELD,
        EngineTokenCounter: stream_fields.ENGINE_COUNTER_FIELD,
    }
    for entry in entries:
        redis.xadd(keys.pool_usage(POOL), {fields[type(entry)]: encode(entry)})
    UsageCollector(redis).drain()


def record(api_key: ApiKey, *, tokens: int, **changes: Any) -> UsageEntry:
    """Completed by the worker ONE, which has generated all of it."""
    of_one: dict[str, Any] = {
        "request_id": new_request_id(ms(ARRIVED)),
        "arrived_at_ms": ms(ARRIVED),
        "finished_at_ms": after(2),
        "usage": TokenUsage(prompt_tokens=11, completion_tokens=tokens),
        "worker_id": ONE,
        "generated_tokens": tokens,
    }
    return usage_entry(api_key, **of_one | changes)


def given_up(api_key: ApiKey, of: UsageEntry, *, wasted: int = 0, **changes: Any) -> WasteEntry:
    """What the worker ONE told of an earlier attempt of a request."""
    of_one = {"request_id": of.request_id, "worker_id": ONE, "ended_at_ms": after(1)}
    return waste_entry(api_key, **of_one | {"completion_tokens": wasted} | changes)


def counter(tokens: int, **changes: Any) -> EngineTokenCounter:
    entry = EngineTokenCounter(
        pool=POOL,
        worker_id=ONE,
        generated_tokens=tokens,
        unbilled_tokens=0,
        started_at_ms=after(-60),
        at_ms=after(10),
        is_final=True,
    )
    return msgspec.structs.replace(entry, **changes)


def lived(worker_id: str, *, until: datetime = ARRIVED) -> None:
    """The registry has seen it from before the arrival on."""
    info = worker_info(worker_id=worker_id, pool=POOL, started_at_ms=after(-60))
    Worker.objects.sync([info], until)


def problems() -> list[str]:
    return [*generated_problems(), *token_counter_problems()]


# Counters -----------------------------------------------------------------------------------------


def test_of_each_life_the_newest_counter_is_kept(redis: Redis) -> None:
    newest, older = counter(9, is_final=False), counter(4, is_final=False, at_ms=after(20))
    report(redis, counter(3, is_final=False), newest, older, counter(2, worker_id=TWO))
    assert _kept() == {ONE: (9, False), TWO: (2, True)}
    report(redis, older, counter(9), counter(9, is_final=False))
    assert _kept() == {ONE: (9, True), TWO: (2, True)}
    assert not UsageRecord.objects.exists() and not models.UsageRollup.objects.exists()


def _kept() -> dict[str, tuple[int, bool]]:
    return {
        row.worker_id: (row.generated_tokens, row.is_final)
        for row in models.EngineTokenCounter.objects.all()
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"pool": "another"},
        {"generated_tokens": -1},
        {"generated_tokens": 2**63},
        {"worker_id": "w" * 300},
        {"worker_id": "nul\0"},
        {"at_ms": 10**18},
        {"started_at_ms": -(10**18)},
    ],
)
def test_a_counter_that_can_be_no_row_is_kept_in_quarantine(
    redis: Redis, changes: dict[str, Any]
) -> None:
    report(redis, counter(5, **changes), counter(6))
    assert _kept() == {ONE: (6, True)}
    row = UsageQuarantine.objects.get()
    assert row.reason and "unforeseen" not in row.reason, "a rule refused it, no mistake of ours"
    assert quarantine.retry([]) == (0, 1)


def test_a_counter_is_for_operators_alone(redis: Redis, api_key: ApiKey) -> None:
    report(redis, counter(5))
    with pytest.raises(DatabaseError) as refused, tenant_scope(api_key.tenant_id):
        models.EngineTokenCounter.objects.count()
    assert isinstance(refused.value.__cause__, InsufficientPrivilege)


# What adds up -------------------------------------------------------------------------------------


@pytest.fixture
def drained(redis: Redis, api_key: ApiKey) -> UsageEntry:
    """A request that ONE began with 4 tokens, wasting one more, and TWO completed with 6. ONE has
    served another one besides. -> the first one's record"""
    entry = record(api_key, tokens=10, generated_tokens=6, attempt=2, worker_id=TWO)
    other = record(api_key, tokens=7, wasted_tokens=2, generated_tokens=9)
    first = given_up(api_key, entry, wasted=1, generated_tokens=5)
    report(redis, first, other, entry, counter(14), counter(6, worker_id=TWO))
    return entry


def test_what_was_handed_over_adds_up(drained: UsageEntry) -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("spoil", "generated", "counted"),
    [
        (
            "UPDATE inference_usagerecord SET completion_tokens = 11 WHERE attempt = 2",
            [[11, 12]],
            [],
        ),
        (
            "UPDATE inference_usagerecord SET completion_tokens = 9 WHERE attempt = 2",
            [[11, 10]],
            [],
        ),
        ("UPDATE inference_usagerecord SET wasted_tokens = 0 WHERE attempt = 1", [[9, 7]], []),
        ("UPDATE inference_wastedattempt SET completion_tokens = 0", [[11, 10]], []),
        ("DELETE FROM inference_wastedattempt", [[6, 10]], [[14, 9]]),
        (
            "UPDATE inference_usagerecord SET generated_tokens = 7 WHERE attempt = 2",
            [[12, 11]],
            [[6, 7]],
        ),
        (
            "UPDATE inference_enginetokencounter SET generated_tokens = 15 WHERE is_final AND "
            "worker_id = 'w#1'",
            [],
            [[15, 14]],
        ),
        ("DELETE FROM inference_usagerecord WHERE attempt = 1", [], [[14, 5]]),
    ],
)
def test_what_does_not_add_up_is_found(
    drained: UsageEntry, spoil: str, generated: list[list[int]], counted: list[list[int]]
) -> None:
    """By request what was generated, and is accounted for; by worker what its engine counted, and
    its attempts report."""
    lived(ONE)
    with connection.cursor() as cursor:
        cursor.execute(spoil)
        assert cursor.rowcount == 1
    assert [tokens(problem) for problem in generated_problems()] == generated
    assert [tokens(problem) for problem in token_counter_problems()] == counted


def tokens(problem: str) -> list[int]:
    """The numbers that a problem tells, without ids and times."""
    return [int(word) for word in re.findall(r"(?<![\w#:.+-])\d+(?![\w:-])", problem)]


def test_a_counter_speaks_of_its_own_moment(redis: Redis, api_key: ApiKey) -> None:
    early, late = record(api_key, tokens=5), record(api_key, tokens=3, finished_at_ms=after(20))
    report(redis, early, late, counter(5, is_final=False))
    assert problems() == []


def test_what_leaves_no_record_is_no_difference(redis: Redis, api_key: ApiKey) -> None:
    report(redis, record(api_key, tokens=5), counter(12, unbilled_tokens=7))
    assert problems() == []
    models.EngineTokenCounter.objects.update(unbilled_tokens=6)
    (problem,) = problems()
    assert tokens(problem) == [12, 6, 5]


# Lives that died ----------------------------------------------------------------------------------


@pytest.fixture
def half_told(redis: Redis, api_key: ApiKey) -> UsageEntry:
    """ONE died with what it had generated; TWO went on from 4 tokens of it."""
    entry = record(api_key, tokens=10, generated_tokens=6, attempt=2, worker_id=TWO)
    report(redis, entry)
    return entry


def test_what_died_with_its_worker_is_no_difference(half_told: UsageEntry) -> None:
    assert len(problems()) == 1
    lived(ONE)
    assert problems() == []


@pytest.mark.parametrize("is_final", [True, False])
def test_a_life_that_has_told_everything_since_explains_nothing(
    redis: Redis, half_told: UsageEntry, is_final: bool
) -> None:
    lived(ONE, until=NOW)
    report(redis, counter(0, is_final=is_final))
    (problem,) = problems()
    assert tokens(problem) == [6, 10]


@pytest.mark.parametrize("changes", [{"pool": "another"}, {"started_at_ms": after(100)}])
def test_a_life_that_cannot_have_had_the_request_explains_nothing(
    half_told: UsageEntry, changes: dict[str, Any]
) -> None:
    elsewhere = {"worker_id": ONE, "pool": POOL, "started_at_ms": after(-60), **changes}
    Worker.objects.sync([worker_info(**elsewhere)], NOW)
    assert len(problems()) == 1


def test_where_every_attempt_has_told_no_life_explains_anything(
    redis: Redis, api_key: ApiKey
) -> None:
    lived(TWO)
    report(redis, record(api_key, tokens=10, generated_tokens=9))
    assert len(problems()) == 1


def test_lives_that_are_forgotten_may_have_died(half_told: UsageEntry) -> None:
    assert list(generated_problems(now=NOW + timedelta(days=8))) == []


@pytest.mark.parametrize("attempt", [0, 1])
def test_an_end_that_a_gateway_made_up_for_a_dead_worker_is_no_difference(
    redis: Redis, api_key: ApiKey, attempt: int
) -> None:
    """Billed is what the gateway had accepted."""
    end = {"outcome": Outcome.FAILED, "attempt": attempt, "generated_tokens": 0}
    report(redis, record(api_key, tokens=4, **end))
    assert problems() == []


def test_a_request_that_redis_lost_may_have_lost_tokens_but_gained_none(
    redis: Redis, api_key: ApiKey
) -> None:
    """Of what was on its way to the gateway, no attempt went on."""
    again = record(api_key, tokens=10, generated_tokens=8, attempt=102, worker_id=TWO)
    report(redis, given_up(api_key, again, generated_tokens=4), again)
    assert problems() == []
    UsageRecord.objects.update(completion_tokens=13)
    assert len(problems()) == 1
    lived(ONE)
    assert problems() == []
    report(redis, counter(4))
    assert len(problems()) == 1


def test_an_attempt_without_a_token_leaves_nothing_behind(redis: Redis, api_key: ApiKey) -> None:
    report(redis, record(api_key, tokens=10, attempt=3))
    assert problems() == list(attempt_problems()) == []
