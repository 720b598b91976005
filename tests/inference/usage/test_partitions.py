"""The usage table by month: where rows go, who may read a part, and how parts come to be."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import CheckViolation, InsufficientPrivilege, InvalidParameterValue

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from inference.usage.partitions import (
    make_partitions,
    make_partitions_ahead,
    month_of,
    months_later,
    months_present,
)
from tenants.access.api_keys import issue_api_key
from tenants.isolation.row_security import tables_without_wall
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey, Project
from tests.support.polling import eventually_sync
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db
JANUARY = datetime(2026, 1, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        issue_api_key(project)
        return project


def record(project: Project, arrived_at: datetime) -> UsageRecord:
    return UsageRecord.objects.create(
        request_id=new_request_id(int(arrived_at.timestamp() * 1000)),
        tenant_id=project.tenant_id, project=project, api_key=ApiKey.objects.get(project=project),
        tier="premium", pool="demo", model="demo", api="completions", stream=True, attempt=1,
        outcome="completed", prompt_tokens=1, cached_tokens=0, completion_tokens=2,
        arrived_at=arrived_at, finished_at=arrived_at,
    )  # fmt: skip


def part_of(row: UsageRecord) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tableoid::regclass::text FROM inference_usagerecord WHERE request_id = %s",
            [row.request_id],
        )
        return str(cursor.fetchone()[0])


def test_a_record_lies_in_the_month_of_its_request_id(acme: Project) -> None:
    with operator_scope("test"):
        make_partitions([date(2026, 2, 1)])
        assert part_of(record(acme, JANUARY)) == "inference_usagerecord_y2026m01"
        later = record(acme, JANUARY + timedelta(milliseconds=1))
        assert part_of(later) == "inference_usagerecord_y2026m02"


def test_this_month_and_the_next_three_are_made_ahead() -> None:
    now = datetime(2026, 3, 31, 12, tzinfo=UTC)
    with operator_scope("test"):
        make_partitions_ahead(now=now)
        months = {date(2026, month, 1) for month in (3, 4, 5, 6)}
        assert months <= months_present()
        assert make_partitions_ahead(now=now) == 0


def test_a_deployment_has_them_from_its_first_migrate_on() -> None:
    # The month may have ended since.
    month = month_of(MigrationRecorder.Migration.objects.latest("applied").applied)
    with operator_scope("test"):
        assert {months_later(month, ahead) for ahead in range(4)} <= months_present()


@given(month=st.dates(date(1, 2, 1), date(9000, 1, 1)), count=st.integers(-12, 100))
def test_months_later_and_earlier_are_first_days(month: date, count: int) -> None:
    later = months_later(month.replace(day=1), count)
    assert later.day == 1
    assert months_later(later, -count) == month.replace(day=1)


def test_an_id_of_a_month_without_a_part_is_refused_loudly(acme: Project) -> None:
    with (
        operator_scope("test"),
        pytest.raises(DatabaseError) as refused,
        transaction.atomic(),
    ):
        record(acme, datetime(2031, 5, 1, tzinfo=UTC))
    assert isinstance(refused.value.__cause__, CheckViolation)


@pytest.mark.django_db(transaction=True)
def test_of_two_who_make_the_same_part_the_second_waits_and_finds_it() -> None:
    month = date(2024, 2, 1)

    def make() -> int:
        try:
            with operator_scope("test, elsewhere"):
                return make_partitions([month])
        finally:
            connection.close()

    def waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            return bool(cursor.fetchall())

    with ThreadPoolExecutor(1) as pool:
        with operator_scope("test"):
            assert make_partitions([month]) == 1
            second = pool.submit(make)
            eventually_sync(waits)
        assert second.result(timeout=30) == 0


@pytest.mark.parametrize("month", ["2019-12-01", "2100-01-01"])
def test_no_part_is_made_of_a_month_that_makes_no_sense(month: str) -> None:
    with pytest.raises(DatabaseError) as refused, operator_scope("test"):
        make_partitions([date.fromisoformat(month)])
    assert isinstance(refused.value.__cause__, InvalidParameterValue)


# The wall ---------------------------------------------------------------------------------------


def test_a_part_has_the_wall_of_the_whole() -> None:
    with operator_scope("test"):
        assert len(months_present()) >= 4
        assert tables_without_wall("default") == []


def test_no_tenant_gets_round_the_wall_through_a_part(acme: Project) -> None:
    with operator_scope("test"):
        part = part_of(record(acme, JANUARY))
    with tenant_scope(acme.tenant_id):
        assert UsageRecord.objects.count() == 1
    for statement in (
        f"SELECT count(*) FROM {part}",  # noqa: S608
        f"DELETE FROM {part}",  # noqa: S608
        "SELECT penstock_make_usage_partition('2026-05-01')",
    ):
        with (
            pytest.raises(DatabaseError) as refused,
            tenant_scope(acme.tenant_id),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
        assert isinstance(refused.value.__cause__, InsufficientPrivilege)
    with tenant_scope(uuid.uuid4()), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM inference_usagerecord")
        assert cursor.fetchone() == (0,)
