"""The table for all that Django answers: pages, the operators' admin, the management API."""

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from tests.isolation.asking import ask
from tests.isolation.credentials import Credential
from tests.isolation.table import COLUMNS, DJANGO_ROWS, Row, methods_of
from tests.support.addresses import API, body_for, url
from tests.support.two_tenants import CANARY, House, TwoTenants

pytestmark = pytest.mark.django_db
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
OTHERS = {"Globex", "Globex key"}
ADMIN = "/admin/"
# What is the same for all, and may be kept.
FOR_ANYBODY = {"/api/v1/schema/", "/api/v1/schema"}


def walked(patterns: list[URLPattern | URLResolver], prefix: str = "/") -> Iterator[str]:
    """Every address that Django's resolver knows."""
    for pattern in patterns:
        address = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from walked(pattern.url_patterns, address)
        else:
            yield re.sub(r"<\w+:(\w+)>", r"<\1>", address)


ADDRESSES = sorted(set(walked(get_resolver().url_patterns)))
PAGES = [address for address in ADDRESSES if address.startswith(ADMIN)]
ROWS = [row for row in DJANGO_ROWS.values() if row.method != "ANY"]
# Pages have theirs in test_pages.py.
TENANT_ROWS = [row for row in ROWS if row.address.startswith(f"{API}tenants/<tenant_id>")]
# What of a tenant stands in addresses by an id.
_OURS = (
    "project",
    "key",
    "member",
    "invitation",
    "quota",
    "transaction",
    "endpoint",
    "delivery",
    "invoice",
    "line",
    "adapter",
    "version",
    "request",
)


def row_address(address: str) -> str:
    """The address under which the table has it: pages of the admin and what is no address are one
    each."""
    if (address, "GET") in DJANGO_ROWS or (address, "POST") in DJANGO_ROWS:
        return address
    if address == API:
        return f"{API}*"
    return f"{ADMIN}*" if address.startswith(ADMIN) else address


def test_every_address_has_a_row_and_every_row_an_address() -> None:
    assert {row_address(address) for address in ADDRESSES} == {
        address for address, _ in DJANGO_ROWS
    }


def told(answer: Any) -> str:
    # What is streamed begins once its transaction is over, which here it never is.
    content = b"" if answer.streaming else answer.content
    return f"{answer.headers}{content.decode(errors='replace')}"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_each_credential_gets_its_status_and_nothing_of_globex(
    row: Row, asking: dict[str, Credential], acme: House, globex_words: list[str]
) -> None:
    found = {}
    for column, credential in asking.items():
        answer = ask(
            credential.client(),
            credential,
            row.method,
            url(row.address, acme),
            body_for(row.address, row.method, acme),
        )
        found[column] = answer.status_code
        if column not in OTHERS:
            assert not [word for word in globex_words if word in told(answer)], column
        if row.address.startswith(API):
            assert (answer["Cache-Control"] == "no-store") is (row.address not in FOR_ANYBODY)
            assert answer["X-Request-Id"]
        if row.address.startswith(API) and answer.status_code >= 400:
            assert set(answer.json()["error"]) == {"message", "type", "code", "param"}
    assert found == dict(zip(COLUMNS, row.statuses, strict=True))


@pytest.fixture
def globex_words(houses: TwoTenants) -> list[str]:
    globex = houses.globex
    ids = [globex.tenant.id, globex.project.id, globex.key.id, globex.quota.id, globex.model.id]
    ids += [globex.upload.id]
    ids += [globex.endpoint.id, globex.delivery.id, globex.invitation.id, globex.mail_domain.id]
    return [CANARY, globex.key.public_id, globex.upload.id.hex, *map(str, ids)]


@pytest.mark.parametrize(
    "address", sorted({row.address for row in ROWS if row.address.startswith(API)})
)
def test_what_a_row_does_not_name_is_not_taken_from_anybody(
    address: str, asking: dict[str, Credential], acme: House
) -> None:
    taken = methods_of(DJANGO_ROWS, address)
    if "GET" in taken:
        taken.append("HEAD")
    for method in METHODS:
        if method in taken:
            continue
        for column in ("nobody", "admin", "admin key", "Globex"):
            answer = ask(asking[column].client(), asking[column], method, url(address, acme))
            assert answer.status_code == 405, (method, column)
            assert sorted(answer["Allow"].split(", ")) == sorted(taken)


@pytest.mark.parametrize("row", TENANT_ROWS, ids=str)
def test_globex_is_told_from_nothing_by_nobody_of_acme(
    row: Row, asking: dict[str, Credential], houses: TwoTenants
) -> None:
    globex = houses.globex
    nothing = url(row.address, globex, tenant_id=uuid.uuid4())
    for column, credential in asking.items():
        if column in OTHERS:
            continue
        client, body = credential.client(), body_for(row.address, row.method, globex)
        theirs = ask(client, credential, row.method, url(row.address, globex), body)
        unknown = ask(client, credential, row.method, nothing, body)
        expected = 401 if column in {"nobody", "revoked", "expired"} else 404
        assert (theirs.status_code, unknown.status_code) == (expected, expected), column
        assert _comparable(theirs) == _comparable(unknown)


@pytest.mark.parametrize("column", ["admin", "admin key"])
@pytest.mark.parametrize(
    "row",
    [row for row in TENANT_ROWS if re.search(rf"<({'|'.join(_OURS)})_id>", row.address)],
    ids=str,
)
def test_what_is_globexs_is_not_found_in_acme(
    row: Row, column: str, asking: dict[str, Credential], houses: TwoTenants
) -> None:
    credential, globex = asking[column], houses.globex
    client, body = credential.client(), body_for(row.address, row.method, houses.acme)
    mixed = url(row.address, globex, tenant_id=houses.acme.tenant.id)
    theirs = ask(client, credential, row.method, mixed, body)
    nothing = {f"{name}_id": uuid.uuid4() for name in _OURS}
    unknown = ask(client, credential, row.method, url(row.address, houses.acme, **nothing), body)
    assert (theirs.status_code, unknown.status_code) == (404, 404)
    assert _comparable(theirs) == _comparable(unknown)


def _comparable(answer: Any) -> tuple[bytes, dict[str, str]]:
    """All of an answer but its own number."""
    headers = {name: value for name, value in answer.items() if name != "X-Request-Id"}
    return answer.content, headers


@pytest.mark.parametrize("column", ["admin", "admin key"])
def test_globexs_model_cannot_take_acmes_requests(
    column: str, asking: dict[str, Credential], houses: TwoTenants
) -> None:
    address = url("/api/v1/tenants/<tenant_id>/projects/<project_id>", houses.acme)

    def set_to(model: str) -> Any:
        body = {"on_saturation": "smaller_model", "smaller_model": model}
        credential = asking[column]
        return ask(credential.client(), credential, "PATCH", address, body)

    theirs, unknown = set_to(houses.globex.model.name), set_to("no-such-model")
    assert (theirs.status_code, unknown.status_code) == (400, 400)
    name = houses.globex.model.name.encode()
    assert theirs.content.replace(name, b"no-such-model") == unknown.content


def test_the_operators_pages_send_everybody_else_to_sign_in(
    asking: dict[str, Credential], acme: House, globex_words: list[str]
) -> None:
    row = DJANGO_ROWS[f"{ADMIN}*", "ANY"]
    for column, status in zip(COLUMNS, row.statuses, strict=True):
        client = asking[column].client()
        for address in PAGES:
            if address == "/admin/login/":
                continue
            for method in ("GET", "POST"):
                # No savepoint for each: they are thousands, and change nothing.
                answer = client.generic(method, url(address, acme), headers=asking[column].headers)
                assert answer.status_code == status, (method, address, column)
                assert "/admin/" in answer["Location"]
                assert not [word for word in globex_words if word in told(answer)]


def test_what_is_no_address_of_the_api_answers_as_what_does_not_exist(
    asking: dict[str, Credential], acme: House
) -> None:
    admin = asking["admin"]
    unknown = ask(admin.client(), admin, "GET", f"{API}tenants/{uuid.uuid4()}")
    row = DJANGO_ROWS[f"{API}*", "ANY"]
    for column, status in zip(COLUMNS, row.statuses, strict=True):
        client = asking[column].client()
        for path in ("", "nothing", "me/", "tenants/1", "tenants/%00", "../admin/"):
            for method in METHODS:
                answer = ask(client, asking[column], method, API + path)
                assert answer.status_code == status, (method, path, column)
                assert answer.content == (b"" if method == "HEAD" else unknown.content)
