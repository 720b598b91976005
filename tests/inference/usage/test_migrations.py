"""Usage of before partitions and rollups is still on record, and in the sums."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from gpu_workers.protocol.request_id import new_request_id
from tests.support.old_databases import OldDatabase, old_database
from tests.support.servers import TestServers

BEFORE = [("inference", "0005_dead_letters")]
JANUARY = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
FEBRUARY = JANUARY + timedelta(minutes=30)


@pytest.fixture(scope="module")
def database(
    test_servers: TestServers, django_db_blocker: DjangoDbBlocker
) -> Iterator[OldDatabase]:
    """With usage of Acme and Globex in two months, as migrated to today."""
    with (
        django_db_blocker.unblock(),
        old_database(test_servers, "before_the_rollups", BEFORE) as database,
    ):
        tier = database.add_tier(BEFORE, name="gold")
        for name in ("Acme", "Globex"):
            tenant = database.add(BEFORE, "tenants.Tenant", name=name, tier_id=tier.pk)
            own = {"tenant_id": tenant.pk}
            own["project_id"] = database.add(BEFORE, "tenants.Project", name="web", **own).pk
            own["api_key_id"] = add_key(database, name, own)
            for number in range(3):
                add_record(database, JANUARY + timedelta(seconds=number), own)
            add_record(database, FEBRUARY, own, outcome="failed", completion_tokens=0)
        database.migrate_to_today()
        yield database


def add_key(database: OldDatabase, name: str, own: dict[str, Any]) -> Any:
    fields = {"name": name, "public_id": name.lower(), "secret_digest": b"d" * 32}
    return database.add(BEFORE, "tenants.ApiKey", **own, **fields).pk


def add_record(database: OldDatabase, at: datetime, own: dict[str, Any], **changes: Any) -> None:
    fields: dict[str, Any] = {
        "request_id": uuid.UUID(new_request_id(int(at.timestamp() * 1000))),
        "tier": "gold",
        "pool": "pool-a",
        "model": "model-a",
        "api": "completions",
        "stream": True,
        "attempt": 1,
        "outcome": "completed",
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 7,
        "arrived_at": at,
        "finished_at": at + timedelta(seconds=1),
    }
    database.add(BEFORE, "inference.UsageRecord", **own, **(fields | changes))


def test_each_record_lies_in_the_part_of_its_month(database: OldDatabase) -> None:
    parts = database.rows(
        "SELECT tableoid::regclass::text, count(*), count(DISTINCT tenant_id)"
        " FROM inference_usagerecord GROUP BY 1 ORDER BY 1"
    )
    assert parts == [
        ("inference_usagerecord_y2026m01", 6, 2),
        ("inference_usagerecord_y2026m02", 2, 2),
    ]


@pytest.mark.parametrize("table", ["usagerollup", "dailyusage"])
def test_the_sums_have_what_was_on_record_before_them(database: OldDatabase, table: str) -> None:
    sums = database.rows(
        f"""
        SELECT tenant.name, requests, completed, failed, prompt_tokens, cached_tokens,
            completion_tokens, cost_nanos
        FROM inference_{table} JOIN tenants_tenant AS tenant ON tenant.id = tenant_id
        ORDER BY 1, requests DESC
        """  # noqa: S608
    )
    assert sums == [
        (name, *counts)
        for name in ("Acme", "Globex")
        for counts in ((3, 3, 0, 30, 12, 21, 0), (1, 0, 1, 10, 4, 0, 0))
    ]
