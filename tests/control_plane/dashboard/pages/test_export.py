"""The export of all data as a page; what the file holds is tested where the API answers it."""

import asyncio
import json
from typing import Any

import pytest

from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db(transaction=True)


def lines_of(answer: Any) -> list[dict[str, Any]]:
    async def joined() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return [json.loads(line) for line in asyncio.run(joined()).splitlines()]


@pytest.mark.parametrize("role", ["owner", "admin", "billing"])
def test_the_file_holds_the_tenant_and_no_other(
    role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in(role)
    assert client.get(f"{acme_address}settings/export").status_code == 200
    answer = client.post(f"{acme_address}settings/export")
    assert answer["Cache-Control"] == "no-store"
    assert answer["Content-Disposition"].startswith("attachment")
    rows = lines_of(answer)
    assert rows[0]["kind"] == "tenant" and rows[0]["id"] == str(houses.acme.tenant.id)
    assert CANARY not in json.dumps(rows)
    with operator_scope("test"):
        event = AuditEvent.objects.filter(tenant=houses.acme.tenant).latest("sequence")
    assert (event.verb, event.actor_id) == ("exported", str(houses.acme.people[role].id))


@pytest.mark.parametrize("role", ["developer", "viewer"])
def test_whoever_may_not_export_is_told_who_may(
    role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    for answer in (
        signed_in(role).get(f"{acme_address}settings/export"),
        signed_in(role).post(f"{acme_address}settings/export"),
    ):
        assert answer.status_code == 403
        assert [str(able) for able in answer.context["able"]] == ["owner", "admin", "billing"]


def test_a_suspended_tenant_may_still_take_its_data(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    assert lines_of(signed_in("owner").post(f"{acme_address}settings/export"))
