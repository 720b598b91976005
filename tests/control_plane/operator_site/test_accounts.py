"""Who gets in, what they may do there, and what is noted of it."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    AuditEvent,
    Membership,
    Project,
    Tenant,
    User,
)
from tests.control_plane.operator_site.records import somebody_who_may

pytestmark = pytest.mark.django_db


def test_somebody_who_is_no_operator_sees_nothing(client: Client) -> None:
    client.force_login(User.objects.create_user("alice@acme.example", "correct horse battery"))
    answer = client.get(reverse("admin:tenants_apikey_changelist"))
    assert answer.status_code == 302 and "/admin/login/" in answer["Location"]


def test_the_sign_in_has_a_field_for_the_second_factor(client: Client) -> None:
    page = client.get("/admin/login/").content.decode()
    form = page[page.index('id="login-form"') : page.index("</form>", page.index('"login-form"'))]
    places = [form.index(part) for part in ('name="password"', 'name="code"', 'type="submit"')]
    assert places == sorted(places)
    assert page.count('name="code"') == 1


@pytest.mark.parametrize(
    ("address", "is_offered"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000", True),
        ("https://penstock.example", True),
    ],
)
def test_passkeys_are_offered_where_browsers_have_them(
    client: Client, settings: Settings, address: str, is_offered: bool
) -> None:
    settings.PENSTOCK_PUBLIC_URL = address
    page = client.get("/admin/login/").content.decode()
    assert ("Sign in with a passkey" in page) is is_offered


def test_an_operator_signs_in_by_email_in_any_case(client: Client) -> None:
    User.objects.create_superuser("ops@example.org", "correct horse battery")
    answer = client.post(
        reverse("admin:login"), {"username": "Ops@Example.org", "password": "correct horse battery"}
    )
    assert answer.status_code == 302


def test_signing_in_and_failing_to_is_recorded(client: Client) -> None:
    User.objects.create_superuser("ops@example.org", "correct horse battery")
    for password in ("wrong", "correct horse battery"):
        client.post("/admin/login/", {"username": "Ops@example.org", "password": password})
    client.post("/admin/login/", {"username": "a password by mistake", "password": "x"})
    client.post(reverse("admin:logout"))
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.exclude(verb="created").order_by("sequence")
        assert [event.verb for event in events] == ["sign_in_failed", "signed_in", "signed_out"]
        assert {event.personal.address for event in events} == {"127.0.0.1"}


@pytest.mark.usefixtures("one_window")
def test_guessing_an_operators_password_is_stopped_with_a_page_that_says_when_to_return(
    client: Client,
) -> None:
    User.objects.create_superuser("ops@example.org", "correct horse battery")
    form = {"username": "ops@example.org", "password": "wrong"}
    answers = [client.post("/admin/login/", form) for _ in range(11)]
    assert {answer.status_code for answer in answers[:10]} == {200}
    assert answers[10].status_code == 429
    assert answers[10]["Retry-After"] == "60"
    assert b"try again" in answers[10].content
    assert client.get("/admin/login/").status_code == 200


def test_the_sidebar_shows_what_its_reader_may_see(client: Client) -> None:
    client.force_login(somebody_who_may("view_tenant"))
    page = client.get(reverse("admin:index"), follow=True).content.decode()
    assert reverse("admin:tenants_tenant_changelist") in page
    assert reverse("admin:tenants_apikey_changelist") not in page


@pytest.mark.usefixtures("one_of_each")
@pytest.mark.parametrize(
    ("model", "action"), [("tenant", "suspend"), ("tenant", "resume"), ("apikey", "revoke")]
)
def test_who_may_only_look_may_not_act(client: Client, model: str, action: str) -> None:
    client.force_login(somebody_who_may("view_tenant", "view_apikey"))
    with operator_scope("test"):
        Tenant.objects.update(is_suspended=action == "resume")
        record = (Tenant.objects if model == "tenant" else ApiKey.objects).get()
    listing = reverse(f"admin:tenants_{model}_changelist")
    assert client.get(listing).status_code == 200
    client.post(listing, {"action": action, "_selected_action": [str(record.pk)]})
    with operator_scope("test"):
        assert Tenant.objects.get().is_suspended is (action == "resume")
        assert not ApiKey.objects.get().is_revoked


@pytest.fixture
def alice(acme: Project) -> Membership:
    """Acme's only owner."""
    user = User.objects.create_user("alice@acme.example", "correct horse battery")
    with operator_scope("test"):
        return Membership.objects.create(tenant=acme.tenant, user=user, role="owner")


def memberships_of(user: User, **fields: str) -> dict[str, str]:
    """The form of an account with one membership."""
    membership = user.memberships.get()
    inline = {
        "TOTAL_FORMS": "1",
        "INITIAL_FORMS": "1",
        "0-id": str(membership.pk),
        "0-user": str(user.pk),
        "0-tenant": str(membership.tenant_id),
        "0-role": membership.role,
        **fields,
    }
    named = {f"memberships-{name}": value for name, value in inline.items()}
    return {"email": user.email, "is_active": "on", **named}


def members_of(tenant: Tenant, **fields: str) -> dict[str, str]:
    """The form of a tenant with all its members, in the order of their addresses."""
    members = list(tenant.memberships.order_by("user__email"))
    sets = ("projects", "memberships", "quotas")
    form = {f"{name}-{count}": "0" for name in sets for count in ("TOTAL_FORMS", "INITIAL_FORMS")}
    form |= {"name": tenant.name, "tier": str(tenant.tier_id)}
    form |= {f"memberships-{count}_FORMS": str(len(members)) for count in ("TOTAL", "INITIAL")}
    for index, member in enumerate(members):
        row = {"id": member.pk, "tenant": tenant.pk, "user": member.user_id, "role": member.role}
        form |= {f"memberships-{index}-{name}": str(value) for name, value in row.items()}
    return form | {f"memberships-{name}": value for name, value in fields.items()}


@pytest.mark.parametrize(
    "way",
    [
        "page",
        "delete",
        "list",
        "account",
        "inline",
        "removed inline",
        "tenant",
        "removed on the tenant's page",
    ],
)
def test_no_page_takes_the_last_owner(operator: Client, alice: Membership, way: str) -> None:
    of_list = {"action": "delete_selected", "_selected_action": [str(alice.pk)], "post": "yes"}
    account = reverse("admin:tenants_user_change", args=[alice.user_id])
    tenant = reverse("admin:tenants_tenant_change", args=[alice.tenant_id])
    with operator_scope("test"):
        forms: dict[str, tuple[str, Any]] = {
            "tenant": (tenant, members_of(alice.tenant, **{"0-role": "admin"})),
            "removed on the tenant's page": (
                tenant,
                members_of(alice.tenant, **{"0-DELETE": "on"}),
            ),
            "page": (
                reverse("admin:tenants_membership_change", args=[alice.pk]),
                {"role": "admin"},
            ),
            "delete": (
                reverse("admin:tenants_membership_delete", args=[alice.pk]),
                {"post": "yes"},
            ),
            "list": (reverse("admin:tenants_membership_changelist"), of_list),
            "account": (
                reverse("admin:tenants_user_delete", args=[alice.user_id]),
                {"post": "yes"},
            ),
            "inline": (account, memberships_of(alice.user, **{"0-role": "admin"})),
            "removed inline": (account, memberships_of(alice.user, **{"0-DELETE": "on"})),
        }
    address, form = forms[way]
    told = operator.post(address, form)
    assert "only owner" in told.content.decode()
    with operator_scope("test"):
        assert Membership.objects.get().role == "owner"


@pytest.mark.parametrize("way", ["page", "delete", "inline", "removed inline"])
def test_an_owner_who_is_not_the_last_may_be_changed_and_removed(
    operator: Client, alice: Membership, way: str
) -> None:
    bob = User.objects.create_user("bob@acme.example", "correct horse battery")
    account = reverse("admin:tenants_user_change", args=[alice.user_id])
    with operator_scope("test"):
        Membership.objects.create(tenant=alice.tenant, user=bob, role="owner")
        forms: dict[str, tuple[str, Any]] = {
            "page": (
                reverse("admin:tenants_membership_change", args=[alice.pk]),
                {"role": "admin"},
            ),
            "delete": (
                reverse("admin:tenants_membership_delete", args=[alice.pk]),
                {"post": "yes"},
            ),
            "inline": (account, memberships_of(alice.user, **{"0-role": "admin"})),
            "removed inline": (account, memberships_of(alice.user, **{"0-DELETE": "on"})),
        }
    address, form = forms[way]
    assert operator.post(address, form).status_code == 302
    with operator_scope("test"):
        left = list(Membership.objects.filter(user=alice.user).values_list("role", flat=True))
        assert left == ([] if way in {"delete", "removed inline"} else ["admin"])


def test_not_all_owners_are_removed_at_once(operator: Client, alice: Membership) -> None:
    bob = User.objects.create_user("bob@acme.example", "correct horse battery")
    with operator_scope("test"):
        other = Membership.objects.create(tenant=alice.tenant, user=bob, role="owner")
    listing = reverse("admin:tenants_membership_changelist")
    chosen = [str(alice.pk), str(other.pk)]
    form = {"action": "delete_selected", "_selected_action": chosen, "post": "yes"}
    assert "only owner" in operator.post(listing, form).content.decode()
    with operator_scope("test"):
        assert Membership.objects.count() == 2


@pytest.mark.parametrize("bobs", [{"1-DELETE": "on"}, {"1-role": "viewer"}, {}])
def test_a_tenants_page_keeps_an_owner_of_those_it_takes_together(
    operator: Client, alice: Membership, bobs: dict[str, str]
) -> None:
    bob = User.objects.create_user("bob@acme.example", "correct horse battery")
    with operator_scope("test"):
        Membership.objects.create(tenant=alice.tenant, user=bob, role="owner")
        form = members_of(alice.tenant, **{"0-role": "admin"}, **bobs)
    answer = operator.post(reverse("admin:tenants_tenant_change", args=[alice.tenant_id]), form)
    with operator_scope("test"):
        roles = list(Membership.objects.order_by("user__email").values_list("role", flat=True))
    if bobs:
        assert "only owner" in answer.content.decode()
        assert roles == ["owner", "owner"]
    else:
        assert answer.status_code == 302
        assert roles == ["admin", "owner"]


def test_nobody_but_a_superuser_changes_accounts(client: Client) -> None:
    user = somebody_who_may("view_user", "add_user", "change_user", "delete_user")
    client.force_login(user)
    page = reverse("admin:tenants_user_change", args=[user.pk])
    assert client.get(page).status_code == 200
    promoted = {"email": user.email, "is_active": "on", "is_staff": "on", "is_superuser": "on"}
    assert client.post(page, promoted).status_code == 403
    assert client.get(reverse("admin:tenants_user_add")).status_code == 403
    password = reverse("admin:auth_user_password_change", args=[user.pk])
    assert client.get(password).status_code == 403
    assert not User.objects.get().is_superuser
