"""Every call of the API and every page of a tenant, asked by each role and each width of a key: who
may is what the one table of permissions says (tenants/permissions.py), cell by cell.

What a call that changes something takes, the table of verbs says (tenants/verbs). Of what only
reads, and of pages, it is read from the view that answers, so a view that asks for another
permission than its door enforces is found, and so is one that asks for none.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import resolve

from gpu_workers.protocol.policy import Scope
from tenants.permissions import ROLE_PERMISSIONS, SCOPE_PERMISSIONS, Permission, Role
from tenants.verbs import VERBS
from tests.isolation.asking import ask
from tests.isolation.credentials import Credential
from tests.isolation.table import DJANGO_ROWS, Row
from tests.support.addresses import API, body_for, url
from tests.support.sign_on.dns_server import a_dns_server
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db
OF_TENANT = f"{API}tenants/<tenant_id>"
CALLS = [row for row in DJANGO_ROWS.values() if row.address.startswith(OF_TENANT)]
VERB_OF = {route: verb for verb in VERBS for route in verb.routes}
PAGES = [row for row in DJANGO_ROWS.values() if row.address.startswith("/t/<tenant_id>/")]


@pytest.fixture(autouse=True, scope="module")
def _names_are_looked_up_here() -> Iterator[None]:
    """Whoever may prove a mail domain has the DNS asked for it."""
    with a_dns_server():
        yield


def route(row: Row) -> str:
    """A call as the table of verbs has it."""
    return f"{row.method} {row.address.removeprefix(OF_TENANT).strip('/')}".strip()


def needed(row: Row, house: House) -> Permission:
    """What the table of verbs says of a call, else the view that answers."""
    verb = VERB_OF.get(route(row)) if row in CALLS else None
    if verb is not None and verb.permission is not None:
        return verb.permission
    view: Any = resolve(url(row.address, house)).func
    if row.address.startswith(API):
        permission: Permission = view.cls.permission_map[view.actions[row.method.lower()]]
    else:
        permission = view.view_class.permissions[row.method]
    return permission


def may(answer: Any) -> bool:
    return bool(answer.status_code != 403)


def test_every_call_that_changes_something_is_a_verb_of_the_table_and_no_other_is() -> None:
    calls = {route(row) for row in CALLS if row.method != "GET"}
    assert calls == VERB_OF.keys()
    assert len(VERB_OF) == sum(len(verb.routes) for verb in VERBS)
    assert all(verb.permission is not None for verb in VERB_OF.values())


@pytest.mark.parametrize("row", CALLS, ids=str)
def test_a_call_is_for_the_roles_and_the_keys_that_the_table_names(
    row: Row, acme: House, asking: dict[str, Credential], people: dict[str, Credential]
) -> None:
    permission, address = needed(row, acme), url(row.address, acme)
    body = body_for(row.address, row.method, acme)
    found: dict[str, bool] = {}
    expected: dict[str, bool] = {}
    for role in Role:
        person = people[role.value]
        found[f"role {role}"] = may(ask(person.client(), person, row.method, address, body))
        expected[f"role {role}"] = permission in ROLE_PERMISSIONS[role]
    for scope in Scope:
        column = "admin key" if scope is Scope.ADMIN else scope.value
        answer = ask(asking[column].client(), asking[column], row.method, address, body)
        is_for_keys = route(row) not in VERB_OF or VERB_OF[route(row)].is_for_keys
        found[f"key {scope}"] = may(answer)
        expected[f"key {scope}"] = is_for_keys and permission in SCOPE_PERMISSIONS[scope]
    assert found == expected


@pytest.mark.parametrize("row", PAGES, ids=str)
def test_a_page_is_for_the_roles_that_the_table_names(
    row: Row, acme: House, people: dict[str, Credential]
) -> None:
    permission, address = needed(row, acme), url(row.address, acme)
    found = {}
    for role in Role:
        person = people[role.value]
        found[role.value] = may(ask(person.client(), person, row.method, address))
    assert found == {role.value: permission in ROLE_PERMISSIONS[role] for role in Role}


def test_every_permission_is_taken_by_some_call_and_by_some_page(acme: House) -> None:
    assert {needed(row, acme) for row in CALLS} == set(Permission)
    assert {needed(row, acme) for row in PAGES} == set(Permission)
