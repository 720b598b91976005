"""The end of a tenant, by its own people: export and closing."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection

from tenants import exports
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Project, Tenant
from tenants.offboarding import download
from tenants.offboarding.download import AT_ONCE, export_parts
from tests.support.api_client import ApiClient
from tests.support.database import connections_in_use
from tests.support.polling import eventually
from tests.support.two_tenants import CANARY, House

pytestmark = pytest.mark.django_db(transaction=True)
AsRole = Callable[[str], ApiClient]


@pytest.fixture(autouse=True)
def _no_file_counted() -> None:
    cache.clear()


async def _joined(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])


def exported(client: ApiClient) -> list[dict[str, Any]]:
    answer = client.post("export")
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "application/x-ndjson"
    assert answer["Content-Disposition"].endswith('.jsonl"')
    return [
        json.loads(line) for line in asyncio.run(_joined(answer.streaming_content)).splitlines()
    ]


def make_projects(house: House, count: int) -> None:
    with operator_scope("test"):
        Project.objects.bulk_create(
            Project(tenant=house.tenant, name=f"project {number} " + "x" * 150)
            for number in range(count)
        )


def test_an_export_holds_all_that_is_the_tenants_and_nothing_else(
    as_role: AsRole, acme: House, globex: House
) -> None:
    make_projects(acme, 400)
    rows = exported(as_role("owner"))
    kinds = [row["kind"] for row in rows]
    assert kinds[0] == "tenant" and kinds.count("project") == 401
    assert {"api_key", "member", "quota", "usage_record", "audit_event"} <= set(kinds)
    text = json.dumps(rows)
    assert CANARY not in text
    assert not [row for row in rows if row["kind"] == "api_key" and "secret_digest" in row]
    assert str(globex.tenant.id) not in text


def test_an_export_is_in_the_log_before_it_is_read(as_role: AsRole) -> None:
    owner = as_role("owner")
    assert owner.post("export").status_code == 200
    assert owner.get("audit", limit=1).json()["data"][0]["verb"] == "exported"


def test_exports_that_nobody_reads_on_hold_no_connection_and_no_other_export_up(
    acme: House,
) -> None:
    """Twice as many as are read from the database at once, all of which stall at the first part."""
    with operator_scope("test"):
        tier = acme.tenant.tier
        tenants = [Tenant.objects.create(name=f"T{n}", tier=tier) for n in range(2 * AT_ONCE)]
        for tenant in tenants:
            Project.objects.bulk_create(
                Project(tenant=tenant, name=f"project {number} " + "x" * 150)
                for number in range(2000)
            )
    connection.close()
    before = connections_in_use()

    async def read_them() -> None:
        exports = [export_parts(tenant.id) for tenant in tenants]
        firsts = [await asyncio.wait_for(anext(parts), 60) for parts in exports]
        await eventually(lambda: connections_in_use() == before, 60)
        for first, parts in zip(firsts, exports, strict=True):
            lines = (first + await _joined(parts)).splitlines()
            assert sum(json.loads(line)["kind"] == "project" for line in lines) == 2000

    asyncio.run(read_them())


def test_who_leaves_ends_an_export(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much there is still to read of the database."""
    closed = threading.Event()

    def endless(*_args: object) -> Iterator[dict[str, str]]:
        try:
            while True:
                yield {"kind": "project", "name": "x" * 150}
        finally:
            closed.set()

    monkeypatch.setattr(download, "tenant_records", endless)

    async def leave() -> None:
        parts = export_parts(acme.tenant.id)
        assert await anext(parts)
        await parts.aclose()

    asyncio.run(leave())
    assert closed.wait(60)


def test_an_export_leaves_the_disk_some_room(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "LEFT_BYTES", 2**62)
    with pytest.raises(OSError, match="broken off"):
        asyncio.run(_joined(export_parts(acme.tenant.id)))


def test_an_export_that_fails_breaks_off(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_args: object) -> Iterator[dict[str, str]]:
        for _ in range(2000):
            yield {"kind": "project", "name": "x" * 150}
        raise ValueError("a row that nobody can tell")

    monkeypatch.setattr(download, "tenant_records", failing)
    with pytest.raises(ValueError, match="nobody can tell"):
        asyncio.run(_joined(export_parts(acme.tenant.id)))


def test_a_tenant_has_two_files_read_at_a_time_and_who_leaves_makes_room(
    as_role: AsRole, globex: House
) -> None:
    owner, other = as_role("owner"), ApiClient(globex.tenant.id, user=globex.people["owner"])
    first, second, third = (owner.post("export") for _ in range(3))
    assert [each.status_code for each in (first, second, third)] == [200, 200, 429]
    assert third.json()["error"]["code"] == "too_many_exports"
    assert other.post("export").status_code == 200
    first.close()
    assert owner.post("export").status_code == 200


def test_an_export_that_takes_too_long_ends_with_a_line_that_says_so(
    as_role: AsRole, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_projects(acme, 2000)
    answer = as_role("owner").post("export")
    clock = SimpleNamespace(monotonic=iter((0, download.LONGEST_SECONDS + 1)).__next__)
    monkeypatch.setattr(exports, "time", clock)
    last = asyncio.run(_joined(answer.streaming_content)).splitlines()[-1]
    assert json.loads(last) == {
        "kind": "incomplete",
        "reason": "This file took longer than 1800 s to be read.",
    }


@pytest.mark.parametrize(
    ("role", "status"), [("owner", 200), ("admin", 200), ("billing", 200), ("developer", 403)]
)
def test_the_roles_that_may_export(as_role: AsRole, role: str, status: int) -> None:
    assert as_role(role).post("export").status_code == status


def test_an_export_holds_what_the_role_may_see(as_role: AsRole) -> None:
    kinds = {
        role: {row["kind"] for row in exported(as_role(role))} for role in ("owner", "billing")
    }
    people = {"member", "audit_event", "webhook_endpoint"}
    assert people <= kinds["owner"] and "left_out" not in kinds["owner"]
    assert not people & kinds["billing"]
    assert {"tenant", "project", "usage_record", "left_out"} <= kinds["billing"]
    left_out = exported(as_role("billing"))[-1]
    assert people <= set(left_out["kinds"])


def test_an_export_takes_no_field_and_no_file_is_kept_for_a_repeat(as_role: AsRole) -> None:
    owner = as_role("owner")
    assert owner.post("export", {"format": "csv"}).json()["error"]["param"] == "format"
    for accept in ("application/x-ndjson", "application/json"):
        headers = {"idempotency-key": "export", "accept": accept}
        answer = owner.send("POST", "export", {}, headers=headers)
        assert answer.status_code == 200 and "Idempotency-Replayed" not in answer


def test_a_tenant_is_closed_by_an_owner_who_types_its_name(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    for name in ("", "acme", "Acme Inc"):
        refused = owner.post("close", {"name": name})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "name")
    assert owner.post("close").json()["error"]["code"] == "missing_field"
    answer = owner.post("close", {"name": "Acme"})
    assert answer.status_code == 200
    assert answer.json()["removed_memberships"] == len(acme.people)
    with operator_scope("test"):
        assert Tenant.objects.get(id=acme.tenant.id).closed_at is not None
        assert not ApiKey.objects.filter(tenant=acme.tenant, revoked_at=None).exists()
    assert as_role("viewer").get().status_code in (401, 404)


def test_who_may_not_close_a_tenant_is_told_so(
    as_role: AsRole, with_scopes: Callable[..., ApiClient], acme: House
) -> None:
    for client in (as_role("admin"), with_scopes("admin")):
        assert client.post("close", {"name": "Acme"}).status_code == 403
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(is_suspended=True)
    refused = as_role("owner").post("close", {"name": "Acme"})
    assert refused.json()["error"]["code"] == "tenant_suspended"
