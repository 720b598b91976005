"""The end of a tenant, by its own people: export and closing."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.db import connections

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Project, Tenant
from tenants.offboarding.download import AT_ONCE, export_parts
from tests.support.api_client import ApiClient
from tests.support.two_tenants import CANARY, House

pytestmark = pytest.mark.django_db(transaction=True)
AsRole = Callable[[str], ApiClient]


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


def test_exports_of_many_tenants_leave_connections_for_others(acme: House) -> None:
    with operator_scope("test"):
        tier = acme.tenant.tier
        tenants = [Tenant.objects.create(name=f"T{n}", tier=tier) for n in range(AT_ONCE + 1)]
        for tenant in tenants:
            Project.objects.bulk_create(
                Project(tenant=tenant, name=f"project {number} " + "x" * 150)
                for number in range(2000)
            )

    async def the_last_waits() -> None:
        exports = [export_parts(tenant.id) for tenant in tenants]
        for parts in exports[:-1]:
            assert await anext(parts)
        last = asyncio.ensure_future(anext(exports[-1]))
        assert await anext(exports[0])
        assert not last.done()
        await exports[0].aclose()
        assert await asyncio.wait_for(last, 60)
        for parts in exports[1:]:
            await parts.aclose()

    asyncio.run(the_last_waits())


def test_one_export_of_a_tenant_runs_at_a_time_and_who_leaves_ends_it(
    as_role: AsRole, acme: House, globex: House
) -> None:
    make_projects(acme, 2000)
    owner, other = as_role("owner"), ApiClient(globex.tenant.id, user=globex.people["owner"])
    answer = owner.post("export")

    async def statuses_while_reading() -> list[int]:
        parts = answer.streaming_content
        assert await anext(parts)
        both = [await asyncio.to_thread(export_status, client) for client in (owner, other)]
        await parts.aclose()
        return both

    assert asyncio.run(statuses_while_reading()) == [409, 200]
    for _ in range(2000):
        if (status := export_status(owner)) == 200:
            break
    assert status == 200


def export_status(client: ApiClient) -> int:
    """What an export that nobody reads is answered with, in whatever thread this runs."""
    try:
        status: int = client.post("export").status_code
        return status
    finally:
        connections.close_all()


@pytest.mark.parametrize(
    ("role", "status"), [("owner", 200), ("admin", 200), ("billing", 200), ("developer", 403)]
)
def test_the_roles_that_may_export(as_role: AsRole, role: str, status: int) -> None:
    assert as_role(role).post("export").status_code == status


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
