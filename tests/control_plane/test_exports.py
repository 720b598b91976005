"""Files that somebody reads slowly: no transaction is open meanwhile, few rows are in memory, and
neither the tenant's own pages nor other tenants wait for it."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from control_plane.records import requests
from django.core.cache import cache
from django.test import Client

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from tenants import exports
from tenants.isolation.scoping import operator_scope
from tenants.models import User
from tests.support.api_client import ApiClient
from tests.support.polling import eventually_sync
from tests.support.servers import TestServers
from tests.support.two_tenants import House, TwoTenants

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = 45


@pytest.fixture(autouse=True)
def _nothing_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    cache.clear()
    monkeypatch.setattr(requests, "ROWS_AT_ONCE", 10)
    yield
    while _OPEN:
        _OPEN.pop().leave()
    cache.clear()


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    now = datetime.now(UTC)
    with operator_scope("test"):
        UsageRecord.objects.bulk_create(
            UsageRecord(
                request_id=uuid.UUID(new_request_id(int(at.timestamp() * 1000))),
                tenant=houses.acme.tenant, project=houses.acme.project, api_key=houses.acme.key,
                tier="premium", pool="p", model="m", api="completions", stream=True, attempt=1,
                outcome="completed", prompt_tokens=1, cached_tokens=0, completion_tokens=1,
                arrived_at=at, finished_at=at,
            )
            for at in (now - timedelta(seconds=number) for number in range(ROWS))
        )  # fmt: skip
    return houses.acme


_OPEN: "list[Reader]" = []


class Reader:
    """Takes a file part by part, as slowly as the test goes on."""

    def __init__(self, answer: Any) -> None:
        assert answer.status_code == 200
        self._answer = answer
        self._loop = asyncio.Runner()
        self._parts = answer.streaming_content
        _OPEN.append(self)

    def take(self) -> bytes:
        return self._loop.run(anext(self._parts, b""))

    def leave(self) -> None:
        """As Django's handler does when the connection is gone."""
        self._answer.close()
        self._loop.close()

    def rest(self) -> list[bytes]:
        parts = []
        while part := self.take():
            parts.append(part)
        return parts


def lately() -> str:
    return f"{datetime.now(UTC) - timedelta(days=20):%Y-%m-%d}"


def of_page(house: House) -> Any:
    client = Client()
    client.force_login(house.people["owner"])
    return client.get(f"/t/{house.tenant.id}/requests/export.csv")


def of_audit_page(house: House) -> Any:
    client = Client()
    client.force_login(house.people["owner"])
    return client.get(f"/t/{house.tenant.id}/audit/export.csv")


def of_api(house: House) -> Any:
    return ApiClient(house.tenant.id, user=house.people["owner"]).get("requests", format="csv")


@pytest.mark.parametrize("door", [of_page, of_api])
def test_a_slow_reader_holds_no_transaction_and_few_rows(
    acme: House, test_servers: TestServers, door: Callable[[House], Any]
) -> None:
    reader = Reader(door(acme))
    heading, part = reader.take(), reader.take()
    with psycopg.connect(test_servers.superuser_url, autocommit=True) as look:
        held = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        assert look.execute(held).fetchone() == (0,)
        snapshots = "SELECT count(*) FROM pg_cursors"
        assert look.execute(snapshots).fetchone() == (0,)
    parts = [part, *reader.rest()]
    assert heading.count(b"\r\n") == 1
    assert max(each.count(b"\r\n") for each in parts) == 10
    assert sum(each.count(b"\r\n") for each in parts) == ROWS


def test_a_tenant_reads_so_many_files_at_once_and_nobody_else_waits(
    acme: House, houses: TwoTenants
) -> None:
    readers = [Reader(of_page(acme)), Reader(of_api(acme))]
    assert all(reader.take() for reader in readers)
    page, api, audit = of_page(acme), of_api(acme), of_audit_page(acme)
    assert [each.status_code for each in (page, api, audit)] == [429] * 3
    assert [each["Retry-After"] for each in (page, api, audit)] == ["10"] * 3
    assert b"2 files are being read already" in page.content
    error = api.json()["error"]
    assert (error["code"], error["type"]) == ("too_many_exports", "rate_limit_error")
    reports = ApiClient(acme.tenant.id, user=acme.people["owner"])
    assert reports.get("usage", format="csv", **{"from": lately()}).status_code == 429
    # Pages and other tenants' files are served.
    assert reports.get("requests").status_code == 200
    assert Reader(of_page(houses.globex)).take()
    # One that ends and one that is left give their places back.
    readers[0].rest()
    assert len(Reader(of_audit_page(acme)).rest()) > 0
    readers[1].leave()
    for door in (of_page, of_api):
        assert Reader(door(acme)).take()
    assert of_page(acme).status_code == 429


def test_an_operator_reads_files_of_all_tenants_and_is_counted_alone(acme: House) -> None:
    operators = []
    for name in ("ops", "night"):
        client = Client()
        client.force_login(User.objects.create_superuser(f"{name}@penstock.example"))
        operators.append(client)

    def ask(client: Client, report: str) -> Any:
        return client.get(f"/api/v1/{report}", {"format": "csv", "from": lately()})

    first, second = operators
    for report in ("usage", "costs", "errors"):
        answer = ask(first, report)
        assert answer.status_code == 200, answer.content
        assert answer["Content-Type"].startswith("text/csv")
    with exports.one_export(_id_of(first)), exports.one_export(_id_of(first)):
        assert ask(first, "usage").status_code == 429
        assert ask(second, "usage").status_code == 200
        assert of_api(acme).status_code == 200


def _id_of(client: Client) -> uuid.UUID:
    return uuid.UUID(client.session["_auth_user_id"])


def test_a_file_that_takes_too_long_says_so_and_ends(
    acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "LONGEST_SECONDS", 2)
    clock = SimpleNamespace(monotonic=iter(range(100)).__next__)
    monkeypatch.setattr(exports, "time", clock)
    parts = Reader(of_api(acme)).rest()
    assert parts[-1].startswith(b"INCOMPLETE: this file took longer than 600 s")
    assert len(parts) == 4  # of six: the heading, two parts, and the line that says so


def test_a_place_that_was_lost_comes_back_by_itself(acme: House) -> None:
    for _ in range(exports.AT_ONCE):
        exports.take_place(acme.tenant.id, 1)
    with pytest.raises(exports.TooManyExports):
        exports.take_place(acme.tenant.id, 1)
    eventually_sync(lambda: of_api(acme).status_code == 200)
