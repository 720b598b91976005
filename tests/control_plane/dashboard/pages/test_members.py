"""Members as pages: inviting, a role, removing, handing over, leaving."""

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey, Invitation, Membership
from tenants.permissions import Role
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import House, TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
NEW = "new@nowhere.example"


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    cache.clear()


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    return houses.acme


@pytest.fixture
def members(acme_address: str) -> str:
    return f"{acme_address}members"


def role_of(acme: House, role: str) -> str | None:
    """What somebody is now who was in that role."""
    with tenant_scope(acme.tenant.id):
        found = Membership.objects.filter(user=acme.people[role]).first()
        return None if found is None else str(found.role)


def levels(answer: Any) -> list[str]:
    return [message.level_tag for message in answer.context["messages"]]


# Inviting -----------------------------------------------------------------------------------------


def test_an_invitation_is_sent_and_stands_below_the_members(
    signed_in: SignIn, members: str
) -> None:
    client = signed_in("admin")
    sent = client.post(f"{members}/invite", {"email": NEW, "role": "billing"}, follow=True)
    assert sent.redirect_chain == [(members, 302)] and levels(sent) == ["success"]
    pending = {each.email: each.role for each in sent.context["pending"].rows}
    assert pending == {NEW: "billing", "invited@acme.example": "viewer"}
    assert NEW not in {each.user.email for each in sent.context["page"].rows}


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"email": "no address"}, "email"),
        ({"email": ""}, "email"),
        ({"email": "viewer@acme.example"}, "email"),
        ({"email": "invited@acme.example"}, "email"),
        ({"role": "owner"}, "role"),
        ({"role": ""}, "role"),
    ],
)
def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(
    signed_in: SignIn, members: str, acme: House, fields: dict[str, str], wrong: str
) -> None:
    typed = {"email": NEW, "role": "billing"} | fields
    answer = signed_in("admin").post(f"{members}/invite", typed, headers=HTMX)
    assert answer.status_code == 422 and list(answer.context["form"].errors) == [wrong]
    assert f'value="{typed["email"]}"' in answer.content.decode() or not typed["email"]
    with tenant_scope(acme.tenant.id):
        assert Invitation.objects.count() == 1


def test_an_owner_may_invite_owners_and_an_admin_is_not_offered_to(
    signed_in: SignIn, members: str
) -> None:
    for role, offered in (("owner", True), ("admin", False)):
        page = signed_in(role).get(f"{members}/invite").content.decode()
        assert ('value="owner"' in page) is offered


def test_an_invitation_is_sent_again_or_withdrawn(
    signed_in: SignIn, acme_address: str, acme: House
) -> None:
    client, invitation = signed_in("admin"), acme.invitation
    address = f"{acme_address}invitations/{invitation.id}"
    assert levels(client.post(f"{address}/resend", follow=True)) == ["success"]
    with tenant_scope(acme.tenant.id):
        sent = Invitation.objects.get(id=invitation.id)
        assert sent.sent_at > invitation.sent_at and sent.digest != invitation.digest
    withdrawn = client.post(f"{address}/withdraw", follow=True)
    assert levels(withdrawn) == ["success"] and withdrawn.context["pending"].rows == []
    assert levels(client.post(f"{address}/resend", follow=True)) == ["error"]


@pytest.mark.usefixtures("one_window")
def test_the_pages_flood_nobodys_mailbox_either(
    signed_in: SignIn, acme_address: str, acme: House
) -> None:
    client = signed_in("admin")
    address = f"{acme_address}invitations/{acme.invitation.id}/resend"
    found = [levels(client.post(address, follow=True)) for _ in range(6)]
    assert found == [["success"]] * 5 + [["error"]]
    form = {"email": acme.invitation.email, "role": "viewer"}
    answer = client.post(f"{acme_address}members/invite", form)
    assert answer.status_code == 422 and answer.context["form"].non_field_errors()


# One member ---------------------------------------------------------------------------------------


def test_role_and_alerts_are_changed(signed_in: SignIn, members: str, acme: House) -> None:
    viewer = acme.members["viewer"]
    client = signed_in("admin")
    assert client.post(f"{members}/{viewer.id}", {"role": "developer"}).status_code == 302
    with tenant_scope(acme.tenant.id):
        changed = Membership.objects.get(id=viewer.id)
        assert (changed.role, changed.gets_alerts) == ("developer", False)
    client.post(f"{members}/{viewer.id}", {"role": "billing", "gets_alerts": "on"})
    with tenant_scope(acme.tenant.id):
        changed = Membership.objects.get(id=viewer.id)
        assert (changed.role, changed.gets_alerts) == ("billing", True)


def test_an_admin_neither_makes_nor_changes_an_owner(
    signed_in: SignIn, members: str, acme: House
) -> None:
    client, owner = signed_in("admin"), acme.members["owner"]
    assert '<form class="form' not in client.get(f"{members}/{owner.id}").content.decode()
    for form in ({"role": "viewer"}, {"role": "owner"}):
        assert client.post(f"{members}/{owner.id}", form).status_code == 422
    typed = {"confirm_name": "owner@acme.example"}
    assert client.post(f"{members}/{owner.id}/remove", typed).status_code == 422
    viewer = acme.members["viewer"]
    assert client.post(f"{members}/{viewer.id}", {"role": "owner"}).status_code == 422
    assert (role_of(acme, "owner"), role_of(acme, "viewer")) == ("owner", "viewer")


@pytest.mark.parametrize("revoke", [True, False])
def test_removing_asks_first_names_the_keys_and_ends_them_if_asked(
    signed_in: SignIn, members: str, acme: House, revoke: bool
) -> None:
    developer = acme.members["developer"]
    with operator_scope("test"):
        key = issue_api_key(acme.project, name="of the developer", by=developer).record
    client, address = signed_in("admin"), f"{members}/{developer.id}/remove"
    page = client.get(address).content.decode()
    assert key.masked in page and "of the developer" in page
    assert acme.key.masked not in page
    for typed in ({}, {"confirm_name": "viewer@acme.example"}):
        assert client.post(address, typed).status_code == 422
    typed = {"confirm_name": "developer@acme.example"} | ({"revoke_keys": "on"} if revoke else {})
    assert client.post(address, typed)["Location"] == members
    assert role_of(acme, "developer") is None
    with operator_scope("test"):
        assert ApiKey.objects.get(id=key.id).is_revoked is revoke
    assert signed_in("developer").get("/t/").status_code == 200


def test_who_made_no_key_is_not_asked_about_keys(
    signed_in: SignIn, members: str, acme: House
) -> None:
    address = f"{members}/{acme.members['viewer'].id}/remove"
    assert "revoke_keys" not in signed_in("admin").get(address).content.decode()


# Handing over and leaving -------------------------------------------------------------------------


def test_an_owner_hands_over_by_the_organisations_name(
    signed_in: SignIn, members: str, acme: House
) -> None:
    client, address = signed_in("owner"), f"{members}/{acme.members['admin'].id}/transfer"
    assert client.post(address, {"confirm_name": "acme"}).status_code == 422
    assert client.post(address, {"confirm_name": "Acme"}, follow=True).status_code == 200
    assert (role_of(acme, "owner"), role_of(acme, "admin")) == ("admin", "owner")
    assert client.post(address, {"confirm_name": "Acme"}).status_code == 403


@pytest.mark.parametrize("role", list(Role))
def test_leaving_is_everybodys_but_the_last_owners(
    signed_in: SignIn, acme_address: str, acme: House, role: str
) -> None:
    client, address = signed_in(role), f"{acme_address}leave"
    assert client.get(address).status_code == 200
    assert client.post(address, {"confirm_name": "?"}).status_code == 422
    answer = client.post(address, {"confirm_name": "Acme"})
    if role == Role.OWNER:
        assert answer.status_code == 422 and role_of(acme, role) == "owner"
    else:
        assert answer["Location"] == "/t/" and role_of(acme, role) is None
        assert client.get(acme_address).status_code == 404


@pytest.mark.parametrize("role", ["developer", "billing", "viewer"])
def test_who_may_not_see_people_sees_none_of_it(
    signed_in: SignIn, members: str, acme: House, role: str
) -> None:
    client: Client = signed_in(role)
    some = f"{members}/{acme.members['viewer'].id}"
    for address in (members, f"{members}/invite", some, f"{some}/remove", f"{some}/transfer"):
        assert client.get(address).status_code == 403
        assert client.post(address, {"role": "owner"}).status_code in (403, 405)
    assert role_of(acme, role) == role


def test_people_of_a_suspended_tenant_change_nobody(
    signed_in: SignIn, members: str, acme: House
) -> None:
    with operator_scope("test"):
        acme.tenant.suspend()
    client = signed_in("owner")
    assert client.get(members).status_code == 200
    form = {"email": NEW, "role": "viewer"}
    assert client.post(f"{members}/invite", form).status_code == 403
    assert client.post(f"/t/{acme.tenant.id}/leave", {"confirm_name": "Acme"}).status_code == 403
