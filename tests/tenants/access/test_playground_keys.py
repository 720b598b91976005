"""The keys behind playgrounds: nobody can present one, and it ends with what its member may."""

import secrets
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction

from tenants import key_format
from tenants.access.api_keys import change_api_key, rotate_api_key
from tenants.access.people import change_role, keys_made_by, leave, remove
from tenants.access.playground_keys import playground_key
from tenants.isolation.scoping import tenant_scope
from tenants.models import ApiKey, Membership, Project, User
from tenants.permissions import ROLE_PERMISSIONS, Role
from tenants.policy.wire import api_key_policy
from tests.support.refusals import raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
OWNER = ROLE_PERMISSIONS[Role.OWNER]


def member(project: Project, name: str, role: Role = Role.DEVELOPER) -> Membership:
    user = User.objects.create(email=f"{name}@acme.example")
    return Membership.objects.create(tenant=project.tenant, user=user, role=role)


def test_a_member_has_one_key_in_each_project(acme: Project) -> None:
    alice, ada = member(acme, "alice"), member(acme, "ada")
    other = Project.objects.create(tenant=acme.tenant, name="other")
    key = playground_key(acme, alice)
    assert playground_key(acme, alice) == key
    assert len({key.id, playground_key(acme, ada).id, playground_key(other, alice).id}) == 3
    assert key.created_by == alice.user and key.scopes == ["inference"]


def test_one_that_was_revoked_is_followed_by_another(acme: Project) -> None:
    alice = member(acme, "alice")
    first = playground_key(acme, alice)
    first.revoke()
    assert playground_key(acme, alice).public_id != first.public_id


def test_no_key_that_anybody_presents_is_it(acme: Project) -> None:
    record = playground_key(acme, member(acme, "alice"))
    policy = api_key_policy(record)
    assert policy.digests == [] and not policy.has_secret
    for secret in (bytes(20), secrets.token_bytes(20)):
        assert ApiKey.objects.find(key_format.assemble(record.public_id, secret)) is None
    assert record.last_four == "" and "no secret" in record.masked


def test_the_database_lets_it_have_no_secret(acme: Project) -> None:
    record = playground_key(acme, member(acme, "alice"))
    digest = key_format.digest(key_format.generate(record.public_id), b"pepper")
    for column in ("secret_digest", "previous_digest"):
        with pytest.raises(IntegrityError), transaction.atomic():
            ApiKey.objects.filter(id=record.id).update(**{column: digest})


def test_it_can_neither_be_rotated_nor_changed(acme: Project) -> None:
    record = playground_key(acme, member(acme, "alice"))
    with raises_invalid("playground"):
        rotate_api_key(record, overlap=timedelta(0))
    with raises_invalid("playground"):
        change_api_key(record, scopes=["admin"])


def _removed(membership: Membership) -> None:
    remove(membership, by=OWNER)


def _demoted(membership: Membership) -> None:
    change_role(membership, Role.VIEWER, by=OWNER)


def _removed_by_command(membership: Membership) -> None:
    call_command("remove_member", membership.tenant.name, membership.user.email)


def _deleted_with_others(membership: Membership) -> None:
    Membership.objects.filter(pk=membership.pk).delete()


@pytest.mark.parametrize(
    "end", [leave, _removed, _demoted, _removed_by_command, _deleted_with_others]
)
def test_who_leaves_or_may_make_no_keys_loses_it_and_nobody_else_does(
    acme: Project, end: Callable[[Membership], None]
) -> None:
    member(acme, "owner", Role.OWNER)
    alice, ada = member(acme, "alice"), member(acme, "ada")
    hers, theirs = playground_key(acme, alice), playground_key(acme, ada)
    with tenant_scope(acme.tenant_id):
        end(alice)
    hers.refresh_from_db()
    theirs.refresh_from_db()
    assert hers.is_revoked and not theirs.is_revoked


def test_a_role_that_may_make_keys_keeps_it(acme: Project) -> None:
    alice = member(acme, "alice")
    key = playground_key(acme, alice)
    with tenant_scope(acme.tenant_id):
        change_role(alice, Role.ADMIN, by=OWNER)
    key.refresh_from_db()
    assert not key.is_revoked


def test_it_is_not_among_the_keys_that_outlast_a_member(acme: Project) -> None:
    alice = member(acme, "alice")
    playground_key(acme, alice)
    assert list(keys_made_by(alice)) == []
