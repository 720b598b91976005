"""Invitations by the API: sent, resent, withdrawn, accepted; leaving, handing over, removing."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.core import mail

from tenants.access.api_keys import issue_api_key
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey, AuditEvent, Invitation, Membership, Tenant, User
from tenants.permissions import Role
from tests.support.accounts.invitations import expire, invited, token_in_mail
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db
AsRole = Callable[[str], ApiClient]
WithScopes = Callable[..., ApiClient]
Committing = Callable[..., AbstractContextManager[Any]]
ACCEPT = "/api/v1/invitations/accept"
NEW = "new@nowhere.example"


def somebody(email: str) -> ApiClient:
    """A person of no tenant."""
    return ApiClient("", user=User.objects.create_user(email))


def code_of(answer: Any) -> str:
    return str(answer.json()["error"]["code"])


# Sending ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "status"), [("invitations", 201), ("members", 202)])
def test_whoever_is_invited_is_no_member_before_they_accept(
    as_role: AsRole,
    acme: House,
    django_capture_on_commit_callbacks: Committing,
    path: str,
    status: int,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        made = as_role("admin").post(path, {"email": " New@Nowhere.example ", "role": "billing"})
    assert made.status_code == status
    told = made.json()
    assert (told["object"], told["email"], told["role"]) == ("invitation", NEW, "billing")
    assert (told["state"], told["invited_by"]) == ("open", "admin@acme.example")
    assert not User.objects.filter(email=NEW).exists()
    assert mail.outbox[-1].to == [NEW]
    assert token_in_mail() not in str(told)
    person = somebody(NEW)
    accepted = person.post(ACCEPT, {"token": token_in_mail()})
    assert accepted.status_code == 200
    assert accepted.json() == {
        "object": "tenant",
        "id": str(acme.tenant.id),
        "name": "Acme",
        "role": "billing",
    }
    assert as_role("owner").get(f"invitations/{told['id']}").json()["state"] == "accepted"
    assert person.post(ACCEPT, {"token": token_in_mail()}).status_code == 409
    with operator_scope("test"):
        assert Membership.objects.get(tenant=acme.tenant, user__email=NEW).role == "billing"


def test_inviting_does_not_tell_whether_somebody_has_an_account(
    as_role: AsRole, globex: House
) -> None:
    known = globex.people["viewer"]
    answers = [
        as_role("admin").post("invitations", {"email": email}).json()
        for email in (known.email, NEW)
    ]
    for answer in answers:
        for its_own in ("id", "email", "created_at", "sent_at", "expires_at"):
            del answer[its_own]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("email", ["no address", "a@b", "", "x" * 255, "a\r\nBcc: b@c.example"])
def test_an_address_that_is_none_is_refused(as_role: AsRole, email: str) -> None:
    for path in ("invitations", "members"):
        answer = as_role("admin").post(path, {"email": email})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "email")


def test_an_address_is_invited_once_and_a_member_not_at_all(as_role: AsRole) -> None:
    admin = as_role("admin")
    assert admin.post("invitations", {"email": NEW}).status_code == 201
    for email in ("NEW@nowhere.example", "viewer@acme.example"):
        assert admin.post("invitations", {"email": email}).status_code == 409
    # Another address, though the mailbox may be the same.
    assert admin.post("invitations", {"email": "new+1@nowhere.example"}).status_code == 201


@pytest.mark.parametrize("asker", ["admin", "owner", "key"])
def test_nobody_invites_above_their_own_role(
    as_role: AsRole, with_scopes: WithScopes, acme: House, asker: str
) -> None:
    client = with_scopes("admin") if asker == "key" else as_role(asker)
    made = client.post("invitations", {"email": NEW, "role": "owner"})
    assert made.status_code == (201 if asker == "owner" else 403)
    assert client.post("invitations", {"email": "x@y.example", "role": "admin"}).status_code == 201
    with operator_scope("test"):
        Invitation.objects.filter(id=acme.invitation.id).update(role="owner")
    status = 200 if asker == "owner" else 403
    assert client.post(f"invitations/{acme.invitation.id}/resend").status_code == status
    status = 204 if asker == "owner" else 403
    assert client.delete(f"invitations/{acme.invitation.id}").status_code == status


def test_an_invitation_by_a_key_names_the_key(with_scopes: WithScopes) -> None:
    made = with_scopes("admin").post("invitations", {"email": NEW}).json()
    assert made["invited_by"] is None and made["api_key_id"] is not None


def test_a_new_link_replaces_the_one_before_and_lasts_seven_days(
    as_role: AsRole, acme: House, django_capture_on_commit_callbacks: Committing
) -> None:
    invitation, old = invited(acme.tenant, email=NEW)
    expire(invitation)
    with django_capture_on_commit_callbacks(execute=True):
        sent = as_role("owner").post(f"invitations/{invitation.id}/resend").json()
    assert (sent["state"], sent["invited_by"]) == ("open", "owner@acme.example")
    person = somebody(NEW)
    assert code_of(person.post(ACCEPT, {"token": old})) == "invitation_unknown"
    assert person.post(ACCEPT, {"token": token_in_mail()}).status_code == 200


def test_a_withdrawn_invitation_stays_on_record_and_is_not_revived(
    as_role: AsRole, acme: House
) -> None:
    invitation, token = invited(acme.tenant, email=NEW)
    admin, path = as_role("admin"), f"invitations/{invitation.id}"
    assert admin.delete(path).status_code == 204
    assert admin.get(path).json()["state"] == "withdrawn"
    assert admin.delete(path).status_code == 409
    assert admin.post(f"{path}/resend").status_code == 409
    assert code_of(somebody(NEW).post(ACCEPT, {"token": token})) == "invitation_withdrawn"
    assert admin.post("invitations", {"email": NEW}).status_code == 201


@pytest.mark.usefixtures("one_window")
def test_nobodys_mailbox_is_flooded_by_invitations(as_role: AsRole, globex: House) -> None:
    admin = as_role("admin")
    made = admin.post("invitations", {"email": NEW}).json()
    path = f"invitations/{made['id']}"
    for _ in range(3):
        assert admin.post(f"{path}/resend").status_code == 200
    assert admin.delete(path).status_code == 204
    assert admin.post("members", {"email": "New@Nowhere.example"}).status_code == 202
    # Neither by the other tenant's doing.
    theirs = ApiClient(globex.tenant.id, user=globex.people["owner"])
    for client in (admin, theirs):
        answer = client.post("invitations", {"email": NEW})
        assert (answer.status_code, code_of(answer)) == (429, "too_many_attempts")
        assert int(answer["Retry-After"]) > 0


@pytest.mark.usefixtures("one_window")
def test_a_tenant_sends_so_many_invitations_an_hour(as_role: AsRole) -> None:
    admin = as_role("admin")
    answers = [
        admin.post("invitations", {"email": f"p{number}@nowhere.example"}).status_code
        for number in range(61)
    ]
    assert answers == [201] * 60 + [429]


# Accepting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "email", ["new+x@nowhere.example", "n.ew@nowhere.example", "new@nowhere.example.org"]
)
def test_only_the_invited_address_accepts(acme: House, email: str) -> None:
    _, token = invited(acme.tenant, email=NEW)
    assert code_of(somebody(email).post(ACCEPT, {"token": token})) == "invitation_of_another"
    assert somebody("New@Nowhere.example").post(ACCEPT, {"token": token}).status_code == 200


@pytest.mark.parametrize("state", ["accepted", "withdrawn", "expired", "declined"])
def test_another_learns_nothing_of_what_became_of_an_invitation(acme: House, state: str) -> None:
    invitation, token = invited(acme.tenant, email=NEW)
    if state == "expired":
        expire(invitation)
    else:
        with operator_scope("test"):
            Invitation.objects.filter(id=invitation.id).update(
                outcome=state, ended_at=invitation.sent_at
            )
    other, its_own = somebody("dave@initech.example"), somebody(NEW)
    assert code_of(other.post(ACCEPT, {"token": token})) == "invitation_of_another"
    assert code_of(its_own.post(ACCEPT, {"token": token})) == f"invitation_{state}"


@pytest.mark.parametrize("token", ["", "x", "ü", "=" * 64, "A" * 64, "A" * 65, "A" * 200])
def test_a_made_up_token_opens_nothing(token: str) -> None:
    answer = somebody(NEW).post(ACCEPT, {"token": token})
    assert (answer.status_code, code_of(answer)) == (409, "invitation_unknown")


def test_a_token_opens_no_other_tenant(acme: House, globex: House) -> None:
    _, token = invited(acme.tenant, email=NEW)
    secret = urlsafe_b64decode(token)[16:]
    swapped = urlsafe_b64encode(globex.tenant.id.bytes + secret).decode()
    assert code_of(somebody(NEW).post(ACCEPT, {"token": swapped})) == "invitation_unknown"


def test_a_key_accepts_nothing(with_scopes: WithScopes, acme: House) -> None:
    _, token = invited(acme.tenant)
    assert with_scopes("admin").post(ACCEPT, {"token": token}).status_code == 403


def test_nobody_joins_a_suspended_tenant_until_it_is_resumed(acme: House) -> None:
    _, token = invited(acme.tenant, email=NEW)
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(is_suspended=True)
    person = somebody(NEW)
    assert code_of(person.post(ACCEPT, {"token": token})) == "tenant_suspended"
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(is_suspended=False)
    assert person.post(ACCEPT, {"token": token}).status_code == 200


@pytest.mark.usefixtures("one_window")
def test_tokens_are_not_guessed_at_speed() -> None:
    person = somebody(NEW)
    codes = [person.post(ACCEPT, {"token": "x"}).status_code for _ in range(21)]
    assert codes == [409] * 20 + [429]


def test_refusals_and_answers_are_in_the_tenants_log_without_names(acme: House) -> None:
    _, token = invited(acme.tenant, email=NEW)
    other, person = somebody("dave@initech.example"), somebody(NEW)
    for _ in range(3):
        other.post(ACCEPT, {"token": token})
    person.post(ACCEPT, {"token": token})
    person.post(ACCEPT, {"token": token})
    with tenant_scope(acme.tenant.id):
        seal_now()
        events = AuditEvent.objects.filter(record_kind="tenants.Invitation")
        told = list(events.order_by("sequence").values_list("verb", "changes"))
        refused = [json.loads(changes) for verb, changes in told if verb == "refused"]
        # Each reason once an hour.
        reasons = [{"reason": "invitation_of_another"}, {"reason": "invitation_accepted"}]
        assert refused == reasons
        assert "accepted" in [verb for verb, _ in told]
        assert not any("example" in changes for _, changes in told)


# Leaving, handing over, removing ------------------------------------------------------------------


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OWNER])
def test_everybody_may_leave_but_the_last_owner(as_role: AsRole, role: str) -> None:
    client = as_role(role)
    assert client.delete("membership").status_code == 204
    assert client.get().status_code == 404
    assert as_role("owner").delete("membership").status_code == 409


def test_an_owner_hands_over_and_stays_as_an_admin(as_role: AsRole, acme: House) -> None:
    heir = acme.members["viewer"]
    owner = as_role("owner")
    told = owner.post("transfer", {"member_id": str(heir.id)}).json()
    assert (told["object"], told["id"], told["role"]) == ("member", str(heir.id), "owner")
    assert owner.get().json()["role"] == "admin"
    assert as_role("viewer").get().json()["role"] == "owner"
    assert owner.post("transfer", {"member_id": str(heir.id)}).status_code == 403
    assert owner.delete("membership").status_code == 204


def test_ownership_goes_to_another_member_only(as_role: AsRole, acme: House, globex: House) -> None:
    owner = as_role("owner")
    assert owner.post("transfer", {"member_id": str(acme.members["owner"].id)}).status_code == 409
    assert (
        owner.post("transfer", {"member_id": str(globex.members["viewer"].id)}).status_code == 404
    )
    second = acme.members["admin"]
    owner.patch(f"members/{second.id}", {"role": "owner"})
    assert owner.post("transfer", {"member_id": str(second.id)}).status_code == 409
    assert owner.post("transfer", {}).json()["error"]["param"] == "member_id"


@pytest.mark.parametrize("revoke", ["true", "false", None])
def test_the_keys_of_a_removed_member_end_if_asked(
    as_role: AsRole, acme: House, revoke: str | None
) -> None:
    developer = acme.members["developer"]
    with operator_scope("test"):
        theirs = issue_api_key(acme.project, by=developer).record
    query = "" if revoke is None else f"?revoke_keys={revoke}"
    assert as_role("admin").delete(f"members/{developer.id}{query}").status_code == 204
    with operator_scope("test"):
        assert ApiKey.objects.get(id=theirs.id).is_revoked is (revoke == "true")
        assert not ApiKey.objects.get(id=acme.key.id).is_revoked


@pytest.mark.parametrize("query", ["revoke_keys=yes", "revoke_keys=", "keys=true"])
def test_what_to_do_with_keys_is_said_plainly(as_role: AsRole, acme: House, query: str) -> None:
    answer = as_role("admin").delete(f"members/{acme.members['viewer'].id}?{query}")
    assert answer.status_code == 400
