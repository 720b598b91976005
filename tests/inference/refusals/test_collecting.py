"""What gateways tell of refusals arrives in PostgreSQL: each batch once, whatever dies between."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.refusals import NEWEST, RefusalCount, RefusalNotice
from inference import tasks
from inference.models import DailyRefusals, NewestRefusal, RefusalReporter, RefusalRollup
from inference.models.refusal import NOBODY
from inference.refusals import collecting, records
from inference.refusals.collecting import add_batches, collect_refusals
from tenants.fsck import run_checks
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey
from tenants.offboarding.closing import close_tenant
from tenants.offboarding.export import tenant_records
from tests.support.projects import make_key
from tests.support.refused.on_record import AT, a_batch, later, notice_of, of_key, refuse, tell

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operators_session")]


@pytest.fixture
def api_key(redis: Redis, operators_session: None) -> ApiKey:
    return make_key("Acme")


def hours() -> dict[tuple[str, str], int]:
    rows = RefusalRollup.objects.order_by("hour", "code")
    return {(f"{row.hour:%d %H}", row.code): row.count for row in rows}


def problems() -> list[str]:
    return [found.problem for found in run_checks() if found.check == "refusals"]


def test_what_several_gateways_tell_is_added_up_by_hour_and_by_day(
    redis: Redis, api_key: ApiKey
) -> None:
    other = make_key("Globex")
    tell(
        redis,
        a_batch(of_key(api_key, count=3), of_key(other, count=5)),
        a_batch(of_key(api_key, count=4), of_key(api_key, later(hours=1), code="saturated")),
        a_batch(of_key(api_key, later(days=1), code="saturated")),
    )
    assert tasks.collect_refusals() == 14
    assert redis.xlen(keys.refusals()) == 0
    with tenant_scope(api_key.tenant_id):
        assert hours() == {
            ("01 07", "requests_per_minute_exceeded"): 7,
            ("01 08", "saturated"): 1,
            ("02 07", "saturated"): 1,
        }
        row = RefusalRollup.objects.get(count=7)
        assert (row.project_id, row.api_key_id) == (api_key.project_id, api_key.id)
        assert (row.model, row.limit, row.scope) == ("small", "requests_per_minute", "key")
        days = DailyRefusals.objects.order_by("day", "code").values_list("day__day", "count")
        assert list(days) == [(1, 7), (1, 1), (2, 1)]
    assert problems() == []


def test_a_batch_that_comes_again_adds_nothing(redis: Redis, api_key: ApiKey) -> None:
    first, second = (
        a_batch(of_key(api_key), notice_of(api_key), process_id=str(uuid.UUID(int=1)), number=n)
        for n in (1, 2)
    )
    tell(redis, first, first, second, first)
    assert collect_refusals() == 2
    tell(redis, second)
    assert collect_refusals() == 0
    assert sum(hours().values()) == NewestRefusal.objects.count() == 2


def test_a_crash_between_commit_and_deletion_counts_nothing_twice(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(redis, a_batch(of_key(api_key, count=3), notice_of(api_key)))

    def die(*_: Any) -> None:
        raise RedisConnectionError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(type(redis), "xdel", die)
        with pytest.raises(RedisConnectionError):
            collect_refusals()
    assert sum(hours().values()) == 3 and redis.xlen(keys.refusals()) == 1
    assert collect_refusals() == 0
    assert sum(hours().values()) == 3 and redis.xlen(keys.refusals()) == 0
    assert NewestRefusal.objects.count() == 1


def test_a_crash_before_the_commit_loses_nothing(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(redis, a_batch(of_key(api_key, count=3), notice_of(api_key)))

    def die(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(collecting, "_keep_newest", die)
        with pytest.raises(MemoryError):
            collect_refusals()
    assert hours() == {}
    assert collect_refusals() == 3


def test_two_that_read_the_same_at_once_add_it_once(redis: Redis, api_key: ApiKey) -> None:
    batches = [
        a_batch(of_key(api_key), of_key(api_key, code=f"code-{each}"), notice_of(api_key))
        for each in range(5)
    ]
    start = threading.Barrier(4)

    def add(order: int) -> int:
        start.wait()
        try:
            return add_batches(batches[::order])
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(add, (1, -1, 1, -1))) == 10
    assert sum(hours().values()) == 10
    assert NewestRefusal.objects.count() == 5
    assert problems() == []


def test_a_tenant_keeps_its_newest_sentences_alone(redis: Redis, api_key: ApiKey) -> None:
    other = make_key("Globex")
    refuse(notice_of(other, message="Globex'"))
    for start in (0, NEWEST):
        notices = [
            notice_of(api_key, later(seconds=start + each), message=f"No. {start + each}")
            for each in range(NEWEST)
        ]
        refuse(*notices)
    refuse(*(notice_of(api_key, later(seconds=-each), message="old") for each in range(30)))
    with tenant_scope(api_key.tenant_id):
        kept = list(NewestRefusal.objects.order_by("at").values_list("message", flat=True))
    assert kept == [f"No. {each}" for each in range(NEWEST, 2 * NEWEST)]
    with tenant_scope(other.tenant_id):
        assert [each.message for each in NewestRefusal.objects.all()] == ["Globex'"]


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": str(uuid.uuid4())},
        {"tenant_id": "acme"},
        {"project_id": "project-of-Acme"},
        {"hour": 10**12},
        {"hour": -1},
        {"count": 0},
        {"count": 2**60},
    ],
)
def test_what_can_be_no_row_stops_no_others(
    redis: Redis, api_key: ApiKey, changes: dict[str, Any]
) -> None:
    tell(redis, a_batch(of_key(api_key, **changes), of_key(api_key)))
    redis.xadd(keys.refusals(), {stream_fields.REFUSALS_FIELD: b"nonsense"})
    redis.xadd(keys.refusals(), {"other": b"nonsense"})
    tell(redis, a_batch(of_key(api_key), process_id="nobody"), a_batch(of_key(api_key)))
    assert collect_refusals() == 2
    assert redis.xlen(keys.refusals()) == 0
    assert sum(hours().values()) == 2


def test_texts_are_cut_to_what_their_columns_hold(redis: Redis, api_key: ApiKey) -> None:
    long: dict[str, Any] = {
        "model": "m\0" * 300,
        "code": "c" * 200,
        "limit": "l" * 90,
        "scope": "s" * 90,
    }
    refuse(of_key(api_key, **long), notice_of(api_key, message="x" * 900, request_id="", **long))
    row = NewestRefusal.objects.get()
    assert (len(row.model), len(row.code), len(row.message)) == (200, 80, 500)
    assert row.request_id is None
    assert RefusalRollup.objects.get().model == row.model == "m" * 200


def test_the_rest_of_a_tenant_has_neither_project_nor_key(redis: Redis, api_key: ApiKey) -> None:
    refuse(of_key(api_key, project_id="", api_key_id="", model="(other)"))
    row = RefusalRollup.objects.get()
    assert {str(row.project_id), str(row.api_key_id)} == {NOBODY}


def test_no_tenants_variety_fills_the_disk(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "ROWS_OF_AN_HOUR", 10)
    other = make_key("Globex")
    for _ in range(3):
        refuse(
            *(of_key(api_key, api_key_id=str(uuid.uuid4()), count=2) for _ in range(8)),
            # The last of them in the order of keys.
            of_key(api_key, api_key_id=str(uuid.UUID(int=2**128 - 1)), code="saturated"),
            of_key(api_key, later(hours=1)),
            of_key(other),
        )
    with tenant_scope(api_key.tenant_id):
        rows = RefusalRollup.objects.filter(hour=AT.replace(minute=0))
        assert sum(row.count for row in rows) == 3 * 17
        rest = [row for row in rows if str(row.api_key_id) == NOBODY]
        assert len(rows) - len(rest) == 10
        assert {row.model for row in rest} == {"(other)"}
        assert {row.code for row in rest} == {"requests_per_minute_exceeded", "saturated"}
    with tenant_scope(other.tenant_id):
        assert [row.count for row in RefusalRollup.objects.all()] == [3]
    assert problems() == []


def test_closing_a_tenant_erases_its_refusals_for_good(redis: Redis, api_key: ApiKey) -> None:
    other = make_key("Globex")
    told: list[RefusalCount | RefusalNotice] = [
        made(each) for each in (api_key, other) for made in (of_key, notice_of)
    ]
    refuse(*told)
    with operator_scope("test"):
        close_tenant(api_key.tenant)
    # A gateway had not told this one yet.
    refuse(*told)
    for model in (RefusalRollup, DailyRefusals, NewestRefusal):
        found = set(model.objects.values_list("tenant_id", flat=True))
        assert found == {other.tenant_id}
    assert problems() == []


def test_an_export_has_the_tenants_refusals(redis: Redis, api_key: ApiKey) -> None:
    other = make_key("Globex")
    refuse(of_key(api_key, count=3), notice_of(api_key), of_key(other), notice_of(other))
    with operator_scope("test"):
        exported = list(tenant_records(api_key.tenant))
    [sums] = [record for record in exported if record["kind"] == "refusals"]
    assert (sums["count"], sums["code"]) == (3, "requests_per_minute_exceeded")
    [sentence] = [record for record in exported if record["kind"] == "refusal"]
    assert sentence["message"].startswith("This API key has reached its limit")


def test_fsck_finds_sums_that_differ_and_sentences_beyond_the_newest(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(of_key(api_key, count=3), notice_of(api_key), notice_of(api_key))
    assert problems() == []
    DailyRefusals.objects.update(count=4)
    monkeypatch.setattr(records, "NEWEST", 1)
    assert problems() == [
        f"Tenant {api_key.tenant_id}, 2026-03-01: refusals are 3 by hour and 4 by day.",
        f"Tenant {api_key.tenant_id}: 2 refusals have their sentence, of 1.",
    ]


def test_gateways_of_long_ago_are_forgotten(redis: Redis, api_key: ApiKey) -> None:
    now = timezone.now()
    add_batches([a_batch(of_key(api_key))], now=now - timedelta(days=32))
    add_batches([a_batch(of_key(api_key))], now=now - timedelta(days=30))
    assert RefusalReporter.objects.count() == 2
    add_batches([a_batch(of_key(api_key))], now=now)
    assert RefusalReporter.objects.count() == 2
