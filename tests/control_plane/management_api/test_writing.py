"""What people and keys can change, and that it changes nothing else."""

from collections.abc import Callable

import pytest
from django.test import Client

from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Project, Quota, Tenant, User
from tenants.permissions import Role
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]
WithScopes = Callable[..., ApiClient]


def test_an_admin_makes_and_renames_projects(as_role: AsRole) -> None:
    admin = as_role("admin")
    made = admin.post("projects", {"name": " web "})
    assert made.status_code == 201 and made.json()["name"] == "web"
    path = f"projects/{made.json()['id']}"
    assert admin.patch(path, {"name": "site"}).json()["name"] == "site"
    assert admin.get(path).json()["name"] == "site"
    taken = admin.post("projects", {"name": "site"})
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "conflict")
    assert admin.patch(path, {"name": "acme project"}).status_code == 409
    blank = admin.post("projects", {"name": "  "})
    assert (blank.status_code, blank.json()["error"]["param"]) == (400, "name")


def test_an_admin_chooses_what_happens_when_a_model_is_saturated(as_role: AsRole) -> None:
    admin = as_role("admin")
    made = admin.post(
        "projects",
        {"name": "web", "on_saturation": "smaller_model", "smaller_model": "public-model"},
    )
    assert made.status_code == 201
    assert made.json()["smaller_model"] == "public-model"
    path = f"projects/{made.json()['id']}"
    renamed = admin.patch(path, {"name": "site"}).json()
    assert renamed == made.json() | {"name": "site"}
    waits = admin.patch(path, {"on_saturation": "wait"}).json()
    assert (waits["on_saturation"], waits["smaller_model"]) == ("wait", None)
    nobody = as_role("developer").patch(path, {"on_saturation": "refuse"})
    assert nobody.status_code == 403


def test_a_smaller_model_is_one_that_the_tenant_sees(as_role: AsRole, globex: House) -> None:
    admin = as_role("admin")
    refused = [
        admin.post(
            "projects", {"name": "web", "on_saturation": "smaller_model", "smaller_model": model}
        )
        for model in (globex.model.name, "no-such-model")
    ]
    theirs, unknown = refused
    assert [each.status_code for each in refused] == [400, 400]
    assert unknown.json()["error"]["param"] == "smaller_model"
    assert theirs.content.replace(globex.model.name.encode(), b"no-such-model") == unknown.content
    without = admin.post("projects", {"name": "web", "on_saturation": "smaller_model"})
    assert "Say which model answers instead." in without.json()["error"]["message"]


def test_a_key_with_the_scope_admin_makes_projects_too(with_scopes: WithScopes) -> None:
    assert with_scopes("admin").post("projects", {"name": "web"}).status_code == 201
    assert with_scopes("keys:write").post("projects", {"name": "web"}).status_code == 403


def test_a_tenant_is_renamed_and_keeps_all_else(as_role: AsRole, acme: House) -> None:
    answer = as_role("owner").patch("", {"name": "Acme Inc"})
    assert (answer.status_code, answer.json()["name"]) == (200, "Acme Inc")
    assert as_role("owner").get().json()["name"] == "Acme Inc"


def test_no_name_says_who_else_is_a_customer(as_role: AsRole, globex: House) -> None:
    answer = as_role("owner").patch("", {"name": globex.tenant.name})
    assert (answer.status_code, answer.json()["name"]) == (200, globex.tenant.name)


def test_a_quota_is_set_at_a_project_or_a_key_and_taken_away(as_role: AsRole, acme: House) -> None:
    admin = as_role("admin")
    for place in ({"project_id": str(acme.project.id)}, {"api_key_id": str(acme.key.id)}):
        quota = {"limit": "requests_per_minute", "value": 5, **place}
        made = admin.post("quotas", quota)
        assert made.status_code == 201
        assert admin.post("quotas", quota).status_code == 409
        path = f"quotas/{made.json()['id']}"
        assert admin.patch(path, {"value": 6}).json()["value"] == 6
        assert admin.patch(path, {"is_hard": False}).json() == made.json() | {
            "value": 6,
            "is_hard": False,
        }
        assert admin.delete(path).status_code == 204
        assert admin.get(path).status_code == 404


def test_the_operators_quotas_of_the_whole_tenant_are_no_members(as_role: AsRole) -> None:
    owner = as_role("owner")
    rows = owner.get("quotas").json()["data"]
    (theirs,) = [row for row in rows if row["scope"] == "tenant"]
    assert theirs["is_own"] is False
    answers = [
        owner.patch(f"quotas/{theirs['id']}", {"value": 10**15}),
        owner.delete(f"quotas/{theirs['id']}"),
    ]
    assert [answer.status_code for answer in answers] == [403] * 2
    assert all("the operator" in answer.json()["error"]["message"] for answer in answers)
    assert owner.get(f"quotas/{theirs['id']}").json() == theirs


def test_owners_and_admins_set_quotas_of_the_whole_tenant_beside_them(as_role: AsRole) -> None:
    admin, body = as_role("admin"), {"limit": "spend_per_month", "value": 10**15}
    assert as_role("developer").post("quotas", body).status_code == 403
    assert admin.post("quotas", {**body, "is_own": False}).status_code == 400
    made = admin.post("quotas", body)
    assert made.status_code == 201
    assert (made.json()["scope"], made.json()["is_own"]) == ("tenant", True)
    again = admin.post("quotas", body)
    assert (again.status_code, again.json()["error"]["param"]) == (409, "limit")
    path = f"quotas/{made.json()['id']}"
    assert admin.patch(path, {"value": 7}).json()["value"] == 7
    assert admin.delete(path).status_code == 204
    assert [
        row["is_own"] for row in admin.get("quotas").json()["data"] if row["scope"] == "tenant"
    ] == [False]


def test_a_quota_has_one_place_and_only_its_tenants_own(
    as_role: AsRole, acme: House, globex: House
) -> None:
    admin = as_role("admin")
    both = {"project_id": str(acme.project.id), "api_key_id": str(acme.key.id)}
    theirs = {"project_id": str(globex.project.id)}
    unknown = {"project_id": "00000000-0000-4000-8000-000000000000"}
    answers = [
        admin.post("quotas", {"limit": "tokens_per_month", "value": 5, **place})
        for place in (both, theirs, unknown)
    ]
    assert [answer.status_code for answer in answers] == [400] * 3
    assert answers[1].content == answers[2].content
    key = admin.post(
        "quotas", {"limit": "tokens_per_month", "value": 5, "api_key_id": str(globex.key.id)}
    )
    assert key.status_code == 400
    with operator_scope("test"):
        assert Quota.objects.filter(limit="tokens_per_month").count() == 0


@pytest.mark.parametrize("asker", ["admin", "owner", "key"])
def test_nobody_grants_a_role_above_their_own(
    as_role: AsRole, with_scopes: WithScopes, acme: House, asker: str
) -> None:
    client = with_scopes("admin") if asker == "key" else as_role(asker)
    status = 202 if asker == "owner" else 403
    made = client.post("members", {"email": "new@acme.example", "role": "owner"})
    assert made.status_code == status
    raised = client.patch(f"members/{acme.members['viewer'].id}", {"role": "owner"})
    assert raised.status_code == (200 if asker == "owner" else 403)
    lowered = client.patch(f"members/{acme.members['owner'].id}", {"role": "viewer"})
    assert lowered.status_code == (200 if asker == "owner" else 403)
    removed = client.delete(f"members/{acme.members['owner'].id}")
    # The owner has just lowered themselves.
    assert removed.status_code == 403


@pytest.mark.parametrize("role", [role for role in Role if role not in {"owner", "admin"}])
def test_others_do_not_manage_people(as_role: AsRole, acme: House, role: str) -> None:
    client = as_role(role)
    assert client.post("members", {"email": "new@acme.example"}).status_code == 403
    own = f"members/{acme.members[role].id}"
    assert client.patch(own, {"role": "owner"}).status_code == 403
    with operator_scope("test"):
        assert Membership.objects.get(id=acme.members[role].id).role == role


def test_the_last_owner_can_neither_be_removed_nor_demoted(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    own = f"members/{acme.members['owner'].id}"
    assert owner.delete(own).status_code == 409
    assert owner.patch(own, {"role": "admin"}).status_code == 409
    assert owner.patch(f"members/{acme.members['admin'].id}", {"role": "owner"}).status_code == 200
    assert owner.delete(own).status_code == 204
    assert owner.get().status_code == 404
    assert User.objects.filter(email="owner@acme.example").exists()


def test_people_of_a_suspended_tenant_may_look_and_revoke(as_role: AsRole, acme: House) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(is_suspended=True)
    owner = as_role("owner")
    assert owner.get("projects").status_code == 200
    refused = owner.post("projects", {"name": "web"})
    assert refused.json()["error"]["code"] == "tenant_suspended"
    assert owner.post(f"keys/{acme.key.id}/revoke").status_code == 200


def test_a_session_changes_nothing_without_its_csrf_token(acme: House) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(acme.people["owner"])
    url = f"/api/v1/tenants/{acme.tenant.id}/projects"
    answer = client.post(url, {"name": "web"}, content_type="application/json")
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "csrf_failed"
    token = client.get("/api/v1/session").json()["csrf_token"]
    made = client.post(
        url, {"name": "web"}, content_type="application/json", headers={"x-csrftoken": token}
    )
    assert made.status_code == 201
    with operator_scope("test"):
        assert Project.objects.filter(name="web").count() == 1
