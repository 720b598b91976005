"""Members of a tenant, where two act at once; what one may is told by the API's tests."""

import threading
from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection

from tenants.access.people import change_role, remove, transfer_ownership
from tenants.errors import Conflict, NotPermitted
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Membership, Tenant, User
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


def test_of_two_owners_who_hand_over_at_once_each_is_an_admin_and_both_heirs_own() -> None:
    with operator_scope("test"):
        tenant = make_project("Acme", "premium").tenant
        owners, heirs = (
            [_member(tenant, f"{name}-{number}", role) for number in range(2)]
            for name, role in (("owner", Role.OWNER), ("heir", Role.VIEWER))
        )
    start = threading.Barrier(2)

    def go(heir: Membership, owner: Membership) -> None:
        start.wait(timeout=10)
        with tenant_scope(tenant.id):
            transfer_ownership(heir, by=owner)

    _at_once(*(partial(go, heir, owner) for heir, owner in zip(heirs, owners, strict=True)))
    with tenant_scope(tenant.id):
        roles = dict(Membership.objects.values_list("user__email", "role"))
    assert roles == {
        "owner-0@acme.example": "admin",
        "owner-1@acme.example": "admin",
        "heir-0@acme.example": "owner",
        "heir-1@acme.example": "owner",
    }


def test_ownership_that_was_just_taken_away_is_not_handed_over() -> None:
    with operator_scope("test"):
        tenant = make_project("Acme", "premium").tenant
        owner = _member(tenant, "alice", Role.OWNER)
        _member(tenant, "ada", Role.OWNER)
        friend = _member(tenant, "friend", Role.VIEWER)
        Membership.objects.filter(id=owner.id).update(role=Role.ADMIN)
    with tenant_scope(tenant.id):
        with pytest.raises(NotPermitted):
            transfer_ownership(friend, by=owner)
        assert Membership.objects.get(id=friend.id).role == Role.VIEWER


def _member(tenant: Tenant, name: str, role: Role) -> Membership:
    user = User.objects.create(email=f"{name}@acme.example")
    return Membership.objects.create(tenant=tenant, user=user, role=role)


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
