"""The page where owners set single sign-on up."""

from typing import Any

import pytest

from tenants.isolation.scoping import operator_scope
from tenants.models import MailDomain, SignOnConfiguration, Tenant
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.sign_on.dns_server import a_dns_server
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
PROVIDER = {
    "issuer": "https://93.184.216.34",
    "client_id": "penstock",
    "client_secret": "a-secret-of-acmes-client",
    "role_claim": "groups",
    "roles": "ops = admin\r\ncn=dev,dc=acme = developer\r\n",
    "default_role": "",
}


def stored() -> SignOnConfiguration:
    with operator_scope("test"):
        return SignOnConfiguration.objects.get()


def test_an_owner_saves_the_provider_and_never_sees_the_secret_again(
    signed_in: SignIn, acme_address: str
) -> None:
    owner, page = signed_in("owner"), f"{acme_address}sign-on"
    answer = owner.post(page, PROVIDER, follow=True)
    assert answer.status_code == 200
    assert stored().roles == {"ops": "admin", "cn=dev,dc=acme": "developer"}
    assert PROVIDER["client_secret"] not in answer.content.decode()
    owner.post(page, PROVIDER | {"client_secret": "", "default_role": "viewer"})
    assert (stored().default_role, stored().client_secret) == ("viewer", PROVIDER["client_secret"])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"issuer": "https://10.0.0.1"}, "issuer"),
        ({"client_secret": ""}, "client_secret"),
        ({"roles": "ops = king"}, "roles"),
        ({"roles": "ops"}, "roles"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_the_rest_stays(
    wrong: dict[str, str], field: str, signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}sign-on", PROVIDER | wrong)
    assert answer.status_code == 422
    form = answer.context["forms"]["provider"]
    assert list(form.errors) == [field]
    assert form["client_id"].value() == "penstock"
    assert PROVIDER["client_secret"] not in answer.content.decode()


def test_all_that_is_wrong_is_said_at_once(signed_in: SignIn, acme_address: str) -> None:
    wrong = {"issuer": "", "client_secret": "", "roles": "ops = boss"}
    answer = signed_in("owner").post(f"{acme_address}sign-on", PROVIDER | wrong)
    form = answer.context["forms"]["provider"]
    assert set(form.errors) == set(wrong)
    assert "'boss' is no role; it is one of owner, admin" in " ".join(form.errors["roles"])
    assert form.fields["client_secret"].is_optional is False
    lines = PROVIDER | {"roles": "ops"}
    answer = signed_in("owner").post(f"{acme_address}sign-on", lines)
    assert "names no role" in answer.context["forms"]["provider"].errors["roles"][0]
    wrong = {"issuer": "https://10.0.0.1", "client_secret": ""}
    owner = signed_in("owner")
    owner.post(f"{acme_address}sign-on", PROVIDER)
    answer = owner.post(f"{acme_address}sign-on", PROVIDER | wrong)
    assert set(answer.context["forms"]["provider"].errors) == set(wrong)


def test_an_owner_asks_for_two_step_sign_in(
    signed_in: SignIn, acme_address: str, houses: TwoTenants
) -> None:
    page = f"{acme_address}sign-on/demands"
    refused = signed_in("owner").post(page, {"demands_sign_on": "on"})
    assert refused.status_code == 422
    assert refused.context["forms"]["demands"].has_error("demands_sign_on")
    signed_in("owner").post(page, {"demands_second_factor": "on"})
    with operator_scope("test"):
        assert Tenant.objects.get(id=houses.acme.tenant.id).demands_second_factor


def test_an_owner_adds_verifies_and_removes_a_domain(signed_in: SignIn, acme_address: str) -> None:
    owner, page = signed_in("owner"), f"{acme_address}sign-on"
    owner.post(f"{page}/domains", {"domain": "acme.example"})
    with operator_scope("test"):
        domain = MailDomain.objects.get(domain="acme.example")
    html = owner.get(page).content.decode()
    assert domain.record_name in html and domain.record_value in html

    def verified() -> Any:
        owner.post(f"{page}/domains/{domain.id}/verify")
        with operator_scope("test"):
            return MailDomain.objects.get(id=domain.id).is_proven

    with a_dns_server() as records:
        assert not verified()
        records[domain.record_name] = [domain.record_value]
        assert verified()
    question = owner.get(f"{page}/domains/{domain.id}/remove").content.decode()
    assert "members with such an address stay" in question
    owner.post(f"{page}/domains/{domain.id}/remove")
    with operator_scope("test"):
        assert not MailDomain.objects.filter(id=domain.id).exists()
    assert owner.post(f"{page}/domains", {"domain": "acme"}).status_code == 422


def test_removing_the_provider_is_asked_first(signed_in: SignIn, acme_address: str) -> None:
    owner = signed_in("owner")
    owner.post(f"{acme_address}sign-on", PROVIDER)
    assert "93.184.216.34" in owner.get(f"{acme_address}sign-on/remove").content.decode()
    owner.post(f"{acme_address}sign-on/remove")
    with operator_scope("test"):
        assert not SignOnConfiguration.objects.exists()


def test_an_admin_sees_it_and_who_may_change_it(signed_in: SignIn, acme_address: str) -> None:
    signed_in("owner").post(f"{acme_address}sign-on", PROVIDER)
    html = signed_in("admin").get(f"{acme_address}sign-on").content.decode()
    assert "93.184.216.34" in html and "owner" in html
    assert PROVIDER["client_secret"] not in html and "<form class" not in html
