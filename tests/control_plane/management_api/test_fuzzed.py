"""schemathesis over the management API, signed in as an owner and with an API key: no 5xx, no
status or answer that the document does not tell, nothing taken that it forbids."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import hypothesis
import pytest
from control_plane.management_api.openapi.document import document
from django.core import signals
from django.core.cache import cache
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from django.test import Client

from tests.support.fuzzing.api import Case, Fuzzer, operations_of, schema_of
from tests.support.two_tenants import House, TwoTenants

pytestmark = pytest.mark.django_db
# Of `make test-all`; `make test` asks a quarter of them, `make fuzz-api` twenty times as many.
IS_QUICK = hypothesis.settings.get_current_profile_name() == "quick"
CASES = int(os.environ.get("FUZZ_CASES", "250" if IS_QUICK else "1000"))
# Of one test, which is one transaction: PostgreSQL keeps locks of each case until it ends.
MOST_AT_ONCE = 2000
SEED = int(os.environ.get("FUZZ_SEED", "0"))
HOST = "testserver"
EXPORT = "/api/v1/tenants/{tenant_id}/export"


@dataclass(frozen=True, kw_only=True)
class Credential:
    headers: dict[str, str]
    cookies: dict[str, str]


def owner(acme: House) -> Credential:
    client = Client()
    client.force_login(acme.people["owner"])
    token = client.get("/api/v1/session").json()["csrf_token"]
    cookies = {name: each.value for name, each in client.cookies.items()}
    return Credential(headers={"X-CSRFToken": token}, cookies=cookies)


def key(acme: House) -> Credential:
    issued = acme.issue(scopes=["inference", "admin", "keys:write", "usage:read"])
    return Credential(headers={"Authorization": f"Bearer {issued}"}, cookies={})


WHO = {"owner": owner, "key": key}


@pytest.fixture
def ids(houses: TwoTenants) -> dict[str, str]:
    """Records that there are, by the names that addresses have for them."""
    acme = houses.acme
    found = {**acme.ids, "line_id": acme.line.id}
    return {name: str(each) for name, each in found.items()}


@contextmanager
def one_transaction() -> Iterator[None]:
    """A server ends the transaction with each request; here all of them share the test's."""
    told = (signals.request_started, signals.request_finished)
    for signal in told:
        signal.disconnect(close_old_connections)
    yield
    for signal in told:
        signal.connect(close_old_connections)
    cache.clear()


@pytest.mark.parametrize("part", range(-(-CASES // MOST_AT_ONCE)))
@pytest.mark.parametrize("who", WHO)
def test_whatever_is_asked_is_answered_as_the_document_tells(
    who: str, part: int, houses: TwoTenants, ids: dict[str, str]
) -> None:
    credential = WHO[who](houses.acme)

    def ask(case: Case) -> None:
        cache.clear()
        point = transaction.savepoint()
        try:
            case.call_and_validate(
                headers={"Host": HOST, **credential.headers}, cookies=credential.cookies
            )
        finally:
            transaction.savepoint_rollback(point)

    schema = schema_of(_document(), app=get_wsgi_application())
    # A stream has a connection of its own, which sees nothing of a test that commits nothing.
    operations = [each for each in operations_of(schema, "/api/v1/") if each.path != EXPORT]
    fuzzer = Fuzzer(ask=ask, ids=ids, seed=SEED + 1000 * part)
    with one_transaction():
        fuzzer.ask_all(operations, cases=min(CASES, MOST_AT_ONCE) // len(WHO))
    assert not fuzzer.found, "\n\n".join(fuzzer.found)


def _document() -> dict[str, object]:
    """A copy: schemathesis writes into what it gets."""
    made: dict[str, object] = json.loads(json.dumps(document()))
    return made
