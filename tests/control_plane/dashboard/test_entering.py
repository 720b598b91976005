"""Who gets into a tenant's pages, and what they are told who may not do something there."""

import uuid

import pytest
from django.conf import settings
from django.shortcuts import resolve_url
from django.test import Client

from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Project, Tenant, User
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db


def test_whoever_is_not_signed_in_is_sent_to_do_so_and_back(
    client: Client, acme_address: str
) -> None:
    answer = client.get(f"{acme_address}projects?cursor=x")
    assert answer.status_code == 302
    assert answer["Location"].startswith(resolve_url(settings.LOGIN_URL))
    assert "next=/t/" in answer["Location"]


def test_a_fragment_for_a_session_that_ended_sends_the_whole_page_to_sign_in(
    client: Client, acme_address: str
) -> None:
    here = f"http://testserver{acme_address}projects"
    headers = {"HX-Request": "true", "HX-Current-URL": here}
    answer = client.post(f"{acme_address}projects/new", {"name": "web"}, headers=headers)
    assert answer.status_code == 401
    assert answer["HX-Redirect"].endswith(f"next={acme_address}projects")


def test_a_cookie_that_is_no_session_is_nobody(client: Client, acme_address: str) -> None:
    client.cookies[settings.SESSION_COOKIE_NAME] = "\x00nothing"
    assert client.get(acme_address).status_code == 302


def test_an_account_that_was_turned_off_is_nobody(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("owner")
    User.objects.filter(id=houses.acme.people["owner"].id).update(is_active=False)
    assert client.get(acme_address).status_code == 302


def test_another_tenants_page_is_that_of_a_tenant_that_does_not_exist(
    signed_in: SignIn, houses: TwoTenants
) -> None:
    client = signed_in("owner")
    theirs = client.get(f"/t/{houses.globex.tenant.id}/")
    nobodys = client.get(f"/t/{uuid.uuid4()}/")
    assert (theirs.status_code, nobodys.status_code) == (404, 404)
    assert theirs.content == nobodys.content and CANARY.encode() not in theirs.content


def test_a_former_member_finds_nothing(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("viewer")
    with operator_scope("test"):
        Membership.objects.filter(id=houses.acme.members["viewer"].id).delete()
    assert client.get(acme_address).status_code == 404


def test_a_closed_tenant_is_gone(signed_in: SignIn, houses: TwoTenants, acme_address: str) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=houses.acme.tenant.id).update(closed_at="2026-01-01T00:00Z")
    assert signed_in("owner").get(acme_address).status_code == 404


def test_a_suspended_tenants_people_may_look_and_change_nothing(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    client = signed_in("owner")
    for page in ("", "projects", f"projects/{houses.acme.project.id}", "members"):
        assert client.get(f"{acme_address}{page}").status_code == 200
    answer = client.post(f"{acme_address}projects/new", {"name": "web", "on_saturation": "wait"})
    assert answer.status_code == 403
    assert answer.context["refusal"].code == "tenant_suspended"
    with operator_scope("test"):
        assert not Project.objects.filter(name="web").exists()


def test_a_role_that_does_not_suffice_is_told_which_does(
    signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("developer").get(f"{acme_address}members")
    assert answer.status_code == 403
    assert answer.context["refusal"].code == "missing_role"
    assert [str(role) for role in answer.context["able"]] == ["owner", "admin"]


def test_pages_stay_out_of_caches(signed_in: SignIn, acme_address: str) -> None:
    answer = signed_in("viewer").get(acme_address)
    assert answer["Cache-Control"] == "no-store"
    assert "HX-Request" in answer["Vary"]


def test_other_methods_are_refused(signed_in: SignIn, acme_address: str) -> None:
    client = signed_in("owner")
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
        assert client.generic(method, f"{acme_address}projects").status_code == 405
    assert client.post(f"{acme_address}members").status_code == 405
    assert client.head(acme_address).status_code == 200
