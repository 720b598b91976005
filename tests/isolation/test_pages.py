"""Pages of a tenant: what is another's is a page that does not exist."""

import re
import uuid
from typing import Any

import pytest
from django.test import Client

from tests.isolation.credentials import Credential
from tests.isolation.table import DJANGO_ROWS, Row, methods_of
from tests.support.two_tenants import CANARY, House, TwoTenants

pytestmark = pytest.mark.django_db
ROWS = [row for row in DJANGO_ROWS.values() if row.address.startswith("/t/<tenant_id>/")]
PEOPLE = ("viewer", "admin")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HTMX = {"HX-Request": "true"}


def url(address: str, house: House, **other: object) -> str:
    ids = {**house.ids, **other}
    return re.sub(r"<(\w+)>", lambda match: str(ids[match[1]]), address)


def ask(client: Client, row: Row, address: str, headers: dict[str, str]) -> Any:
    return client.generic(row.method, address, headers=headers)


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "fragment"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_globexs_page_is_told_from_nothing_by_nobody_of_acme(
    row: Row, headers: dict[str, str], asking: dict[str, Credential], houses: TwoTenants
) -> None:
    for column in PEOPLE:
        client = asking[column].client()
        theirs = ask(client, row, url(row.address, houses.globex), headers)
        unknown = ask(client, row, url(row.address, houses.globex, tenant_id=uuid.uuid4()), headers)
        assert (theirs.status_code, unknown.status_code) == (404, 404), column
        assert theirs.content == unknown.content and dict(theirs.items()) == dict(unknown.items())
        assert CANARY not in theirs.content.decode()


@pytest.mark.parametrize("row", [row for row in ROWS if "_id>" in row.address[14:]], ids=str)
def test_what_is_globexs_is_not_found_in_acme(row: Row, houses: TwoTenants) -> None:
    # Only an owner may ask for a transfer.
    client, acme = Client(), houses.acme
    client.force_login(acme.people["owner"])
    theirs = ask(client, row, url(row.address, houses.globex, tenant_id=acme.tenant.id), {})
    inside = row.address.replace("<tenant_id>", str(acme.tenant.id))
    unknown = ask(client, row, re.sub(r"<\w+>", str(uuid.uuid4()), inside), {})
    assert (theirs.status_code, unknown.status_code) == (404, 404)
    assert theirs.content == unknown.content


@pytest.mark.parametrize("address", sorted({row.address for row in ROWS}))
def test_what_a_row_does_not_name_is_not_taken_from_anybody(
    address: str, asking: dict[str, Credential], houses: TwoTenants
) -> None:
    taken = methods_of(DJANGO_ROWS, address)
    for method in METHODS:
        if method not in taken:
            for column in ("nobody", "admin", "Globex"):
                answer = asking[column].client().generic(method, url(address, houses.acme))
                assert answer.status_code == 405, (method, column)
