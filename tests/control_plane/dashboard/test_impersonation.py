"""Operators who act as a member: what they must say first, what they may not, and how it ends."""

import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from control_plane.dashboard import urls
from control_plane.dashboard.page import TenantPage
from django.contrib.auth.models import Permission as AdminPermission
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from tenants.access import impersonation
from tenants.access.member_access import MemberAccess
from tenants.audit.log import seal_now
from tenants.errors import NotPermitted
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, Membership, Project, Tenant, User
from tenants.permissions import ACTING_MAY, ROLE_PERMISSIONS, Permission, Role
from tenants.webhooks.emails import send_due
from tenants.webhooks.fan_out import fan_out_events
from tests.support.two_tenants import CANARY, PASSWORD, House, TwoTenants

pytestmark = pytest.mark.django_db
REASON = "Ticket 4711: projects are not listed"
END = "/operators/end-acting"


@pytest.fixture(autouse=True)
def _no_attempts_counted() -> None:
    cache.clear()


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    return houses.acme


@pytest.fixture
def ops(db: None) -> User:
    """An operator who may make people members of tenants, and see tenants, and no more."""
    user = User.objects.create_user("ops@example.org", PASSWORD, is_staff=True)
    names = ("view_tenant", "add_membership")
    user.user_permissions.set(AdminPermission.objects.filter(codename__in=names))
    return user


@pytest.fixture
def client(ops: User) -> Client:
    client = Client(REMOTE_ADDR="192.0.2.5")
    client.force_login(ops)
    return client


def page_of(house: House, name: str = "") -> str:
    return f"/t/{house.tenant.id}/{name}"


def act(client: Client, house: House, *, role: str = "admin", reason: str = REASON) -> Any:
    address = reverse("admin:tenants_tenant_act_as_member", args=[house.tenant.id])
    return client.post(address, {"sure": "yes", "role": role, "reason": reason})


def is_in(client: Client, house: House) -> bool:
    return bool(client.get(page_of(house)).status_code == 200)


def events(house: House, verb: str) -> list[AuditEvent]:
    with operator_scope("test"):
        seal_now()
        found = AuditEvent.objects.filter(tenant_id=house.tenant.id, verb=verb)
        return list(found.select_related("personal").order_by("sequence"))


# Starting -----------------------------------------------------------------------------------------


def test_an_operator_sees_a_tenants_pages_once_they_have_said_why(
    client: Client, acme: House
) -> None:
    assert not is_in(client, acme)
    assert act(client, acme)["Location"] == page_of(acme)
    answer = client.get(page_of(acme, "members"))
    assert answer.status_code == 200
    assert answer.context["access"].role == "admin"


@pytest.mark.parametrize("reason", ["", "   ", "why not", "x" * 301, "Ticket 4711 \0"])
def test_without_a_reason_nobody_acts(client: Client, acme: House, reason: str) -> None:
    answer = act(client, acme, reason=reason)
    assert answer.context["form"].has_error("reason")
    assert not is_in(client, acme)


@pytest.mark.parametrize("role", ["owner", "", "operator"])
def test_nobody_acts_as_an_owner(client: Client, acme: House, role: str) -> None:
    assert act(client, acme, role=role).context["form"].has_error("role")
    assert not is_in(client, acme)


def test_who_may_not_make_members_may_not_act_as_one(
    client: Client, ops: User, acme: House
) -> None:
    ops.user_permissions.set(AdminPermission.objects.exclude(codename="add_membership"))
    assert act(client, acme).status_code == 403
    assert not is_in(client, acme)


def test_who_is_no_operator_cannot_start(acme: House, houses: TwoTenants) -> None:
    client = Client()
    client.force_login(houses.globex.people["owner"])
    assert "/admin/login/" in act(client, acme)["Location"]
    assert not is_in(client, acme)


def test_opening_a_link_starts_and_ends_nothing(client: Client, acme: House) -> None:
    address = reverse("admin:tenants_tenant_act_as_member", args=[acme.tenant.id])
    client.get(f"{address}?sure=yes&role=admin&reason={REASON}")
    assert not is_in(client, acme)
    act(client, acme)
    assert client.get(END).status_code == 405
    assert is_in(client, acme)


def test_another_site_can_neither_start_nor_end_it(ops: User, acme: House) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ops)
    assert act(client, acme).status_code == 403
    assert client.post(END).status_code == 403


def test_it_cannot_be_nested_nor_made_longer(
    client: Client, houses: TwoTenants, acme: House
) -> None:
    act(client, acme, role="viewer")
    act(client, acme, role="admin")
    act(client, houses.globex)
    assert client.get(page_of(acme)).context["access"].role == "viewer"
    assert not is_in(client, houses.globex)
    assert len(events(acme, "operator_entered")) == 1


def test_a_closed_tenant_has_no_members_to_act_as(client: Client, acme: House) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(closed_at="2026-01-01T00:00Z")
    act(client, acme)
    assert not is_in(client, acme)
    assert events(acme, "operator_entered") == []


# What it does not open ----------------------------------------------------------------------------


def test_no_other_tenant_opens(client: Client, houses: TwoTenants) -> None:
    act(client, houses.acme)
    answer = client.get(page_of(houses.globex))
    assert answer.status_code == 404
    assert CANARY not in answer.content.decode()


def test_the_api_does_not_open(client: Client, acme: House) -> None:
    act(client, acme)
    for path in ("", "/projects", "/keys", "/members", "/audit"):
        answer = client.get(f"/api/v1/tenants/{acme.tenant.id}{path}")
        assert answer.status_code == 404, path
    assert client.get("/api/v1/tenants").json()["data"] == []


def test_the_account_stays_the_operators_own(client: Client, acme: House, ops: User) -> None:
    act(client, acme)
    for path in ("", "sessions/", "2fa/", "logout/"):
        page = client.get(f"/account/{path}").content.decode()
        assert "@acme.example" not in page
    assert client.get("/api/v1/session").json()["user"]["email"] == ops.email


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OWNER])
@pytest.mark.parametrize("permission", list(Permission))
def test_nothing_opens_that_is_not_named(role: Role, permission: Permission, acme: House) -> None:
    """Whatever permission is added later is closed until somebody opens it."""
    access = MemberAccess(user=acme.people["admin"], tenant=acme.tenant, role=role, membership=None)
    may = permission in ROLE_PERMISSIONS[role] & ACTING_MAY
    assert access.may(permission) is may
    if not may:
        with pytest.raises(NotPermitted):
            access.check(permission, is_change=False)
    is_change_open = may and permission is Permission.WRITE_PROJECTS
    assert access.may_change(permission) is is_change_open
    if not is_change_open:
        with pytest.raises(NotPermitted):
            access.check(permission, is_change=True)


def test_keys_money_people_sign_on_and_the_end_are_closed() -> None:
    closed = set(Permission) - ACTING_MAY
    assert closed >= {
        Permission.WRITE_KEYS,
        Permission.WRITE_ADAPTERS,
        Permission.WRITE_QUOTAS,
        Permission.WRITE_PEOPLE,
        Permission.WRITE_WEBHOOKS,
        Permission.EXPORT,
        Permission.CLOSE,
    }


def changing_pages() -> Iterator[tuple[str, Permission]]:
    for pattern in urls.urlpatterns:
        page = getattr(getattr(pattern, "callback", None), "view_class", None)
        if page is not None and issubclass(page, TenantPage) and "POST" in page.permissions:
            yield str(pattern.pattern), page.permissions["POST"]


@pytest.mark.parametrize(("route", "permission"), sorted(changing_pages()))
def test_no_page_takes_a_change_but_of_what_is_named(
    client: Client, acme: House, route: str, permission: Permission
) -> None:
    act(client, acme, role="admin")
    ids = {"tenant_id": acme.tenant.id, "project_id": acme.project.id}
    address = "/" + re.sub(
        r"<\w+:(\w+)>", lambda match: str(ids.get(match[1], uuid.uuid4())), route
    )
    is_open = permission is Permission.WRITE_PROJECTS
    assert (client.post(address).status_code == 403) is not is_open


def test_who_acts_may_no_more_than_the_role(client: Client, acme: House) -> None:
    act(client, acme, role="viewer")
    assert client.get(page_of(acme, "members")).status_code == 403
    answer = client.post(page_of(acme, "projects/new"), {"name": "web", "on_saturation": "wait"})
    assert answer.status_code == 403


def test_an_operator_who_is_a_member_too_has_the_less_while_acting(
    client: Client, ops: User, acme: House
) -> None:
    with operator_scope("test"):
        Membership.objects.create(tenant=acme.tenant, user=ops, role=Role.OWNER)
    act(client, acme, role="viewer")
    assert client.get(page_of(acme, "members")).status_code == 403
    client.post(END)
    assert client.get(page_of(acme, "members")).status_code == 200


def test_a_suspended_tenant_is_looked_at_only(client: Client, acme: House) -> None:
    with operator_scope("test"):
        acme.tenant.suspend()
    act(client, acme)
    assert is_in(client, acme)
    answer = client.post(page_of(acme, "projects/new"), {"name": "web", "on_saturation": "wait"})
    assert answer.context["refusal"].code == "tenant_suspended"


# How it ends --------------------------------------------------------------------------------------


def test_it_ends_when_the_operator_says_so(client: Client, acme: House) -> None:
    act(client, acme)
    assert client.post(END)["Location"] == "/admin/"
    assert not is_in(client, acme)
    assert client.get("/admin/pages/").status_code == 200


def test_it_ends_after_half_an_hour(
    client: Client, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert timedelta(minutes=30) >= impersonation.LONGEST
    monkeypatch.setattr(impersonation, "LONGEST", timedelta(seconds=-1))
    act(client, acme)
    assert not is_in(client, acme)
    assert len(events(acme, "operator_left")) == 1


def test_it_ends_with_the_operators_own_session(client: Client, ops: User, acme: House) -> None:
    act(client, acme)
    other = Client()
    other.force_login(ops)
    assert not is_in(other, acme)
    client.post("/account/logout/")
    client.force_login(ops)
    assert not is_in(client, acme)
    assert len(events(acme, "operator_left")) == 1


@pytest.mark.parametrize("field", ["is_active", "is_staff"])
def test_it_ends_with_the_operators_rights(
    client: Client, ops: User, acme: House, field: str
) -> None:
    act(client, acme)
    User.objects.filter(pk=ops.pk).update(**{field: False})
    assert not is_in(client, acme)


def test_it_ends_when_the_permission_is_taken_away(client: Client, ops: User, acme: House) -> None:
    act(client, acme)
    ops.user_permissions.clear()
    assert not is_in(client, acme)


def test_where_operators_need_a_second_factor_it_takes_one(
    client: Client, acme: House, ops: User, settings: Settings
) -> None:
    act(client, acme)
    settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR = True
    # The session has not proven the one that the account has by now.
    Authenticator.objects.create(user=ops, type=Authenticator.Type.TOTP, data={})
    assert not is_in(client, acme)


def test_it_ends_when_the_tenant_closes(client: Client, acme: House) -> None:
    act(client, acme)
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(closed_at="2026-01-01T00:00Z")
    assert not is_in(client, acme)


def test_somebody_else_who_signs_in_on_that_browser_does_not_act(
    client: Client, acme: House, houses: TwoTenants
) -> None:
    act(client, acme)
    client.force_login(houses.globex.people["owner"])
    assert not is_in(client, acme)


# What owners learn --------------------------------------------------------------------------------


def test_every_page_says_so_and_has_the_button_that_ends_it(client: Client, acme: House) -> None:
    pages = (page_of(acme), page_of(acme, "projects"), "/t/", "/account/", "/t/nothing")
    assert not any(END in client.get(page).content.decode() for page in pages)
    act(client, acme)
    for page in pages:
        assert END in client.get(page).content.decode(), page
    assert "Acting in Acme" in client.get("/admin/pages/").content.decode()


def test_the_tenants_log_has_start_end_and_changes_under_the_operators_name(
    client: Client, ops: User, acme: House
) -> None:
    act(client, acme)
    answer = client.post(
        page_of(acme, "projects/new"), {"name": "from support", "on_saturation": "wait"}
    )
    assert answer.status_code == 302
    client.post(END)
    with operator_scope("test"):
        project = Project.objects.get(name="from support")
    (entered,) = events(acme, "operator_entered")
    (left,) = events(acme, "operator_left")
    (made,) = (event for event in events(acme, "created") if event.record_id == str(project.id))
    for event in (entered, left, made):
        assert (event.actor_kind, event.actor_id) == ("user", str(ops.pk))
        assert (event.personal.actor_name, event.personal.address) == (ops.email, "192.0.2.5")
    assert entered.changed_fields["reason"] == REASON
    assert entered.changed_fields["role"] == "admin"


def test_all_owners_get_an_e_mail_also_those_who_want_no_alerts(
    client: Client, acme: House
) -> None:
    with operator_scope("test"):
        Membership.objects.filter(user=acme.people["owner"]).update(gets_alerts=False)
        Membership.objects.filter(user=acme.people["admin"]).update(role=Role.OWNER)
        fan_out_events()
        send_due()
    mail.outbox.clear()
    act(client, acme)
    with operator_scope("test"):
        fan_out_events()
    send_due()
    told = {address: message for message in mail.outbox for address in message.to}
    assert sorted(told) == ["admin@acme.example", "owner@acme.example"]
    assert all(REASON in str(message.body) for message in told.values())
