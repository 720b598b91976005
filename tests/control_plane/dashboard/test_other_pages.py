"""The overview, the members, the organisations of a person, the operators' page of components."""

import gzip

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, User
from tenants.permissions import Role
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
LOADED = (
    "tokens.css base.css components.css forms.css shell.css main.js copying.js dialogs.js focus.js "
    "notices.js secrets.js theme.js times.js upload.js icons.svg vendor/htmx/htmx.min.js"
)


def join(houses: TwoTenants, user: User) -> None:
    with operator_scope("test"):
        Membership.objects.create(tenant=houses.globex.tenant, user=user, role=Role.VIEWER)


def test_the_overview_names_organisation_tier_and_role(
    signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("billing").get(acme_address)
    assert answer.context["tier"].name == "premium"
    assert answer.context["access"].role is Role.BILLING
    html = answer.content.decode()
    assert "<h1>Acme</h1>" in html and "premium" in html


def test_the_overview_lists_what_needs_attention(signed_in: SignIn, houses: TwoTenants) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    answer = signed_in("owner").get(f"/t/{houses.acme.tenant.id}/")
    assert answer.context["attention"][0].kind == "suspended"
    html = answer.content.decode()
    assert html.count("attention-item") == len(answer.context["attention"])
    assert html.index('id="attention"') < html.index('id="month"')


def test_members_are_listed_with_their_roles(signed_in: SignIn, acme_address: str) -> None:
    answer = signed_in("admin").get(f"{acme_address}members")
    found = {member.user.email: member.role for member in answer.context["page"].rows}
    assert found == {f"{role}@acme.example": role for role in Role}
    assert "(you)" in answer.content.decode()


def test_every_role_is_explained(signed_in: SignIn, acme_address: str) -> None:
    answer = signed_in("admin").get(f"{acme_address}members")
    assert [role for role, _ in answer.context["roles"]] == list(Role)


def test_whoever_has_one_organisation_goes_straight_there(
    signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("viewer").get("/t/")
    assert (answer.status_code, answer["Location"]) == (302, acme_address)


def test_whoever_has_several_chooses(signed_in: SignIn, houses: TwoTenants) -> None:
    join(houses, houses.acme.people["viewer"])
    answer = signed_in("viewer").get("/t/")
    assert answer.status_code == 200
    for house in (houses.acme, houses.globex):
        assert f"/t/{house.tenant.id}/" in answer.content.decode()


def test_the_switcher_gets_the_list_alone(signed_in: SignIn, acme_address: str) -> None:
    here = {"HX-Current-URL": f"http://testserver{acme_address}projects"}
    html = signed_in("viewer").get("/t/", headers=HTMX | here).content.decode()
    assert f'href="{acme_address}" aria-current="true"' in html and "<html" not in html


def test_whoever_has_no_organisation_is_told_so(client: Client) -> None:
    client.force_login(User.objects.create_user("new@nowhere.example"))
    answer = client.get("/t/")
    assert answer.status_code == 200
    assert "new@nowhere.example" in answer.content.decode()


def test_only_operators_see_the_components(signed_in: SignIn, houses: TwoTenants) -> None:
    client = signed_in("owner")
    assert client.get("/operators/components").status_code == 404
    User.objects.filter(id=houses.acme.people["owner"].id).update(is_staff=True)
    assert client.get("/operators/components").status_code == 200


def test_the_theme_is_drawn_by_the_server(signed_in: SignIn, acme_address: str) -> None:
    client = signed_in("owner")
    assert "data-theme=" not in client.get(acme_address).content.decode().split("<head>")[0]
    for theme in ("dark", "light"):
        client.cookies["penstock_theme"] = theme
        assert f'<html lang="en" data-theme="{theme}">' in client.get(acme_address).content.decode()
    client.cookies["penstock_theme"] = '"><script>'
    assert "<script>" not in client.get(acme_address).content.decode()


def test_a_page_is_small_with_all_that_it_loads(signed_in: SignIn, acme_address: str) -> None:
    total = len(gzip.compress(signed_in("owner").get(f"{acme_address}projects").content))
    for name in LOADED.split():
        found = finders.find(f"dashboard/{name}")
        assert isinstance(found, str), name
        with open(found, "rb") as file:  # noqa: PTH123 - a finder's path is a text
            total += len(gzip.compress(file.read()))
    assert total < 200_000
