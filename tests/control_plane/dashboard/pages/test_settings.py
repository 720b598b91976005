"""The organisation's settings as pages: its name, its tier, its end."""

import pytest
from django.test import Client

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Tenant, User
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


def acme_of(houses: TwoTenants) -> Tenant:
    with operator_scope("test"):
        return Tenant.objects.get(id=houses.acme.tenant.id)


def test_an_admin_renames_the_organisation(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("admin").post(
        f"{acme_address}settings", {"name": " Acme Works "}, follow=True
    )
    assert answer.redirect_chain == [(f"{acme_address}settings", 302)]
    assert acme_of(houses).name == "Acme Works"


@pytest.mark.parametrize("name", ["", "   ", "x" * 201, "a\x00b"])
def test_a_name_that_is_none_is_refused_beside_its_field(
    name: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}settings", {"name": name})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["name"]
    assert acme_of(houses).name == "Acme"


def test_a_bad_name_is_refused_and_the_page_goes_on_as_before(
    signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}settings", {"name": "two\nlines"})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["name"]
    assert answer.context["access"].tenant.name == "Acme"


@pytest.mark.parametrize("role", ["developer", "billing", "viewer"])
def test_whoever_may_not_change_it_reads_it_and_who_may(
    role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in(role)
    answer = client.get(f"{acme_address}settings")
    assert answer.status_code == 200
    assert [str(able) for able in answer.context["renamers"]] == ["owner", "admin"]
    html = answer.content.decode()
    assert str(houses.acme.tenant.id) in html and 'name="name"' not in html
    assert client.post(f"{acme_address}settings", {"name": "x"}).status_code == 403
    assert acme_of(houses).name == "Acme"


@pytest.mark.parametrize("role", ["admin", "developer", "billing", "viewer"])
def test_nobody_but_an_owner_closes_it(
    role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, address = signed_in(role), f"{acme_address}settings/close"
    assert client.get(address).status_code == 403
    assert client.post(address, {"confirm_name": "Acme"}).status_code == 403
    assert acme_of(houses).closed_at is None


def test_a_suspended_tenant_cannot_be_closed_by_its_owner(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    answer = signed_in("owner").post(f"{acme_address}settings/close", {"confirm_name": "Acme"})
    assert answer.status_code == 403
    assert acme_of(houses).closed_at is None


def test_what_ends_is_counted_before_it_ends(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        bob = User.objects.create_user("bob@both.example")
        for house in (houses.acme, houses.globex):
            Membership.objects.create(tenant=house.tenant, user=bob)
    context = signed_in("owner").get(f"{acme_address}settings/close").context
    ending = context["ending"]
    assert (ending.api_keys, ending.projects) == (1, 1)
    assert (ending.members, ending.accounts) == (6, 5)
    assert context["held"].credit_nanos == 10**9
    assert context["unpaid"] == [houses.acme.invoice]


@pytest.mark.parametrize("typed", ["", "acme", "Acm", "Globex"])
def test_it_is_not_closed_until_its_name_is_typed(
    typed: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}settings/close", {"confirm_name": typed})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["confirm_name"]
    assert acme_of(houses).closed_at is None


def test_a_form_from_elsewhere_closes_nothing(houses: TwoTenants, acme_address: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(houses.acme.people["owner"])
    answer = client.post(f"{acme_address}settings/close", {"confirm_name": "Acme"})
    assert answer.status_code == 403
    assert acme_of(houses).closed_at is None


def test_an_owner_closes_it_and_everything_of_it_ends(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("owner")
    answer = client.post(f"{acme_address}settings/close", {"confirm_name": "Acme"})
    assert answer.status_code == 200
    assert answer.context["name"] == "Acme"
    assert CANARY not in answer.content.decode()
    with operator_scope("test"):
        assert Tenant.objects.get(id=houses.acme.tenant.id).closed_at is not None
        assert ApiKey.objects.get(id=houses.acme.key.id).is_revoked
        assert not Membership.objects.filter(tenant=houses.acme.tenant).exists()
        assert not User.objects.get(id=houses.acme.people["owner"].id).is_active
        assert not ApiKey.objects.get(id=houses.globex.key.id).is_revoked
        assert Membership.objects.filter(tenant=houses.globex.tenant).count() == 5
    assert client.get(acme_address).status_code in (302, 404)
    assert client.get("/t/").status_code == 302
