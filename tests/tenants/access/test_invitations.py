"""Invitations where two act at once, and where whoever sent one has changed since."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from tenants.access.api_keys import issue_api_key
from tenants.access.invitations.accepting import InvitationRefused, accept, sign_up_invited
from tenants.access.invitations.inviting import invite, resend, withdraw
from tenants.access.people import change_role, remove
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey, Invitation, Membership, Project, User
from tenants.offboarding.closing import close_tenant
from tenants.permissions import ROLE_PERMISSIONS, Role
from tests.support.accounts.invitations import expire, invited
from tests.support.projects import make_project
from tests.support.refusals import raises_conflict, raises_not_permitted
from tests.support.two_tenants import PASSWORD

pytestmark = pytest.mark.django_db(transaction=True)
OWNER = ROLE_PERMISSIONS[Role.OWNER]


@pytest.fixture(autouse=True)
def _nothing_noted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        return make_project("Acme", "premium")


@pytest.fixture
def carol() -> User:
    return User.objects.create_user("carol@initech.example", PASSWORD)


def member(acme: Project, name: str, role: Role) -> Membership:
    with operator_scope("test"):
        user = User.objects.create(email=f"{name}@acme.example")
        return Membership.objects.create(tenant=acme.tenant, user=user, role=role)


def members(acme: Project) -> list[str]:
    with tenant_scope(acme.tenant_id):
        return sorted(Membership.objects.values_list("user__email", flat=True))


def refusal(token: str, user: User) -> str:
    with pytest.raises(InvitationRefused) as caught:
        accept(token, user)
    return caught.value.code


# Two at once --------------------------------------------------------------------------------------


def test_an_address_is_invited_once_however_many_ask(acme: Project) -> None:
    def go() -> None:
        with tenant_scope(acme.tenant_id):
            invite(acme.tenant, email="new@acme.example", role=Role.VIEWER, by=None)

    assert outcomes(go, go) == ["already_invited", "done"]
    with tenant_scope(acme.tenant_id):
        assert Invitation.objects.count() == 1


def test_a_link_makes_one_member_of_two_who_use_it_at_once(acme: Project) -> None:
    _, token = invited(acme.tenant, role=Role.ADMIN)

    def go() -> None:
        sign_up_invited(token, name="", password=PASSWORD, address=None)

    assert outcomes(go, go) == ["done", "invitation_accepted"]
    assert members(acme) == ["carol@initech.example"]


def test_accepted_or_withdrawn_but_never_both(acme: Project, carol: User) -> None:
    for _ in range(5):
        invitation, token = invited(acme.tenant)

        def take_back(invitation: Invitation = invitation) -> None:
            with tenant_scope(acme.tenant_id):
                withdraw(invitation, by=None)

        def join(token: str = token) -> None:
            accept(token, carol)

        found = outcomes(take_back, join)
        assert found in (["done", "invitation_accepted"], ["done", "invitation_withdrawn"])
        is_member = members(acme) == [carol.email]
        assert is_member is ("invitation_accepted" in found)
        with operator_scope("test"):
            Membership.objects.all().delete()


def test_whoever_joins_while_the_tenant_closes_is_no_member_of_a_closed_one(
    acme: Project, carol: User
) -> None:
    _, token = invited(acme.tenant)

    def close() -> None:
        with operator_scope("test"):
            close_tenant(acme.tenant)

    assert outcomes(close, lambda: accept(token, carol)) in (
        ["done", "done"],
        ["done", "invitation_unknown"],
    )
    assert members(acme) == []


def test_a_role_taken_away_while_the_link_is_used_gives_nothing(acme: Project, carol: User) -> None:
    for _ in range(5):
        admin = member(acme, "admin", Role.ADMIN)
        _, token = invited(acme.tenant, role=Role.ADMIN, by=admin)

        def demote(admin: Membership = admin) -> None:
            with tenant_scope(acme.tenant_id):
                change_role(admin, Role.VIEWER, by=OWNER)

        def join(token: str = token) -> None:
            accept(token, carol)

        assert outcomes(demote, join) in (["done", "done"], ["done", "inviter_may_not"])
        with operator_scope("test"):
            Invitation.objects.all().delete()
            Membership.objects.all().delete()
            User.objects.exclude(id=carol.id).delete()


# Who stands behind it -----------------------------------------------------------------------------


def test_an_invitation_is_worth_what_its_sender_may_still_grant(acme: Project, carol: User) -> None:
    owner, admin = member(acme, "owner", Role.OWNER), member(acme, "admin", Role.ADMIN)
    _, token = invited(acme.tenant, role=Role.OWNER, by=owner)
    member(acme, "other", Role.OWNER)
    for role in (Role.ADMIN, Role.VIEWER):
        with tenant_scope(acme.tenant_id):
            change_role(owner, role, by=OWNER)
        assert refusal(token, carol) == "inviter_may_not"
    with tenant_scope(acme.tenant_id):
        remove(owner, by=OWNER)
    assert refusal(token, carol) == "inviter_may_not"
    with operator_scope("test"):
        user = admin.user
        Membership.objects.filter(id=admin.id).update(role=Role.ADMIN)
    invitation, of_admin = invited(acme.tenant, email="dave@initech.example", by=admin)
    dave = User.objects.create_user("dave@initech.example")
    with operator_scope("test"):
        user.delete()
        # It goes with them: else it would be the operator's.
        assert not Invitation.objects.filter(id=invitation.id).exists()
    assert refusal(of_admin, dave) == "invitation_unknown"
    assert carol.email not in members(acme) and dave.email not in members(acme)


def test_whoever_sends_it_again_vouches_for_it(acme: Project, carol: User) -> None:
    admin, other = member(acme, "admin", Role.ADMIN), member(acme, "other", Role.OWNER)
    invitation, _ = invited(acme.tenant, by=admin)
    with tenant_scope(acme.tenant_id):
        remove(admin, by=OWNER)
        sent = resend(invitation, by=other)
        assert (sent.invited_by, sent.api_key) == (other.user, None)


@pytest.mark.parametrize("end", ["revoked", "expired", "narrowed"])
def test_an_invitation_by_a_key_ends_with_the_key(acme: Project, carol: User, end: str) -> None:
    with operator_scope("test"):
        key = issue_api_key(acme, scopes=["admin"]).record
    _, token = invited(acme.tenant, by=key)
    changes: dict[str, dict[str, object]] = {
        "revoked": {"revoked_at": timezone.now()},
        "expired": {"expires_at": timezone.now() - timedelta(seconds=1)},
        "narrowed": {"scopes": ["keys:write"]},
    }
    with operator_scope("test"):
        ApiKey.objects.filter(id=key.id).update(**changes[end])
    assert refusal(token, carol) == "inviter_may_not"
    with operator_scope("test"):
        ApiKey.objects.filter(id=key.id).update(revoked_at=None, expires_at=None, scopes=["admin"])
    assert accept(token, carol).role == Role.DEVELOPER


def test_nobody_invites_above_their_own_or_touches_such_an_invitation(acme: Project) -> None:
    admin = member(acme, "admin", Role.ADMIN)
    invitation, _ = invited(acme.tenant, role=Role.OWNER)
    with tenant_scope(acme.tenant_id):
        with raises_not_permitted("not_permitted", "role"):
            invite(acme.tenant, email="new@acme.example", role=Role.OWNER, by=admin)
        for verb in (resend, withdraw):
            with raises_not_permitted("not_permitted", "role"):
                verb(invitation, by=admin)


# One at a time ------------------------------------------------------------------------------------


def test_an_expired_invitation_makes_room_for_another(acme: Project, carol: User) -> None:
    first, old = invited(acme.tenant)
    expire(first)
    _, new = invited(acme.tenant, role=Role.VIEWER)
    assert refusal(old, carol) == "invitation_expired"
    assert accept(new, carol).role == Role.VIEWER


def test_who_is_a_member_is_not_invited_again(acme: Project, carol: User) -> None:
    invitation, token = invited(acme.tenant)
    with operator_scope("test"):
        Membership.objects.create(tenant=acme.tenant, user=carol, role=Role.VIEWER)
    assert refusal(token, carol) == "already_member"
    with tenant_scope(acme.tenant_id):
        with raises_conflict("already_member", "email"):
            invite(acme.tenant, email="Carol@Initech.example", role=Role.ADMIN, by=None)
        with raises_conflict("already_member", "email"):
            resend(invitation, by=None)
        assert Membership.objects.get().role == Role.VIEWER


def test_nobody_is_invited_where_no_e_mail_can_be_sent(acme: Project, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    with tenant_scope(acme.tenant_id):
        with raises_conflict("no_email"):
            invite(acme.tenant, email="new@acme.example", role=Role.VIEWER, by=None)
        assert not Invitation.objects.exists()


def outcomes(*calls: Callable[[], object]) -> list[str]:
    """What comes of calls at the same moment: the code of each refusal, or `done`; sorted."""
    start = threading.Barrier(len(calls))
    found: list[str] = []

    def run(call: Callable[[], object]) -> None:
        start.wait(timeout=10)
        try:
            call()
            found.append("done")
        except Conflict as conflict:
            found.append(conflict.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    return sorted(found)
