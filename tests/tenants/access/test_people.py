"""Members of a tenant, where two act at once; what one may is told by the API's tests."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from tenants.access.people import change_role, invite, remove
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Membership, User
from tenants.permissions import ROLE_PERMISSIONS, Role
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db(transaction=True)
OWNER = ROLE_PERMISSIONS[Role.OWNER]


@pytest.mark.parametrize("leave", [True, False], ids=["removed", "demoted"])
def test_of_two_owners_who_go_at_once_one_stays(leave: bool) -> None:
    with operator_scope("test"):
        tenant = make_project("Acme", "premium").tenant
        owners = [
            Membership.objects.create(
                tenant=tenant, user=User.objects.create(email=f"{name}@acme.example"), role="owner"
            )
            for name in ("alice", "ada")
        ]
    start = threading.Barrier(2)
    refused: list[Conflict] = []

    def go(membership: Membership) -> None:
        start.wait(timeout=10)
        try:
            with tenant_scope(tenant.id):
                if leave:
                    remove(membership, by=OWNER)
                else:
                    change_role(membership, Role.VIEWER, by=OWNER)
        except Conflict as conflict:
            refused.append(conflict)

    _at_once(*(lambda membership=membership: go(membership) for membership in owners))
    assert len(refused) == 1
    with tenant_scope(tenant.id):
        assert Membership.objects.filter(role="owner").count() == 1


def test_two_invitations_of_one_address_make_one_member() -> None:
    with operator_scope("test"):
        tenant = make_project("Acme", "premium").tenant
    start = threading.Barrier(2)
    outcomes: list[str] = []

    def go() -> None:
        start.wait(timeout=10)
        try:
            with tenant_scope(tenant.id):
                invite(tenant.id, email="new@acme.example", role=Role.VIEWER, by=OWNER)
            outcomes.append("member")
        except Conflict:
            outcomes.append("conflict")

    _at_once(go, go)
    assert sorted(outcomes) == ["conflict", "member"]
    with tenant_scope(tenant.id):
        assert Membership.objects.count() == 1


def _at_once(*calls: Callable[[], None]) -> None:
    def run(call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
