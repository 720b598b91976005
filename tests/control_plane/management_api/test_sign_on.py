"""Single sign-on and mail domains as a tenant's owners set them up by the API."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.api_client import ApiClient
from tests.support.sign_on.dns_server import a_dns_server
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db
AsRole = Callable[[str], ApiClient]
PROVIDER = {
    "issuer": "https://93.184.216.34",
    "client_id": "penstock",
    "client_secret": "a-secret-of-acmes-client",
    "role_claim": "groups",
    "roles": {"ops": "admin"},
    "default_role": "viewer",
}


@pytest.fixture
def records() -> Iterator[dict[str, list[str]]]:
    with a_dns_server() as records:
        yield records


def test_an_owner_sets_a_provider_up_changes_and_removes_it(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    empty = owner.get("sign-on").json()
    assert (empty["issuer"], empty["roles"], empty["created_at"]) == (None, {}, None)
    assert empty["redirect_uri"].endswith(f"/sso/{acme.tenant.id}/callback")
    made = owner.patch("sign-on", PROVIDER).json()
    assert made["created_at"] is not None
    shown = {name: value for name, value in PROVIDER.items() if name != "client_secret"}
    assert made == empty | shown | {"created_at": made["created_at"]}
    changed = owner.patch("sign-on", {"default_role": None, "role_claim": None}).json()
    assert changed == made | {"default_role": None, "role_claim": None}
    assert as_role("admin").get("sign-on").json() == changed
    assert owner.delete("sign-on").status_code == 204
    assert owner.get("sign-on").json() == empty


def test_the_secret_is_in_no_answer(as_role: AsRole) -> None:
    owner = as_role("owner")
    answers = [owner.patch("sign-on", PROVIDER), owner.get("sign-on")]
    assert not [each for each in answers if PROVIDER["client_secret"] in each.content.decode()]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"issuer": "https://10.0.0.1"}, "issuer"),
        ({"client_secret": ""}, "client_secret"),
        ({"roles": {"ops": "king"}}, "roles.ops"),
        ({"roles": []}, "roles"),
        ({"default_role": "king"}, "default_role"),
        ({"tenant": "x"}, "tenant"),
        ({"encrypted_client_secret": "x"}, "encrypted_client_secret"),
        ({"sign_on_url": "x"}, "sign_on_url"),
        ({"demands_sign_on": 1}, "demands_sign_on"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, object], param: str, as_role: AsRole) -> None:
    answer = as_role("owner").patch("sign-on", PROVIDER | body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_what_is_demanded_is_set_and_its_conditions_are_told(as_role: AsRole) -> None:
    owner = as_role("owner")
    refused = owner.patch("sign-on", {"demands_sign_on": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (409, "demands_sign_on")
    taken = owner.patch("sign-on", {"demands_second_factor": True})
    assert taken.json()["demands_second_factor"] is True
    # And holds for whoever has set it.
    asked = owner.get("sign-on")
    assert (asked.status_code, asked.json()["error"]["code"]) == (403, "second_factor_required")


def test_an_owner_claims_a_domain_and_proves_it(
    as_role: AsRole, records: dict[str, list[str]]
) -> None:
    owner = as_role("owner")
    made = owner.post("mail-domains", {"domain": "Acme.Example"})
    assert made.status_code == 201
    domain = made.json()
    assert (domain["domain"], domain["proven_at"]) == ("acme.example", None)
    path = f"mail-domains/{domain['id']}"
    assert owner.post(f"{path}/verify").status_code == 409
    records[domain["record_name"]] = [domain["record_value"]]
    proven = owner.post(f"{path}/verify").json()
    assert proven["proven_by"] == "dns" and proven["proven_at"] is not None
    assert owner.get(path).json() == proven
    assert domain["id"] in {
        row["id"] for row in as_role("admin").get("mail-domains").json()["data"]
    }
    assert owner.post("mail-domains", {"domain": "acme.example"}).status_code == 409
    assert owner.delete(path).status_code == 204
    assert owner.get(path).status_code == 404


def test_another_tenants_domain_is_not_found(as_role: AsRole, globex: House) -> None:
    path = f"mail-domains/{globex.mail_domain.id}"
    owner = as_role("owner")
    assert owner.get(path).status_code == 404
    assert owner.delete(path).status_code == 404
    assert owner.post(f"{path}/verify").status_code == 404


def test_domains_are_found_by_state_and_name(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    owner.post("mail-domains", {"domain": "acme.example"})

    def found(**wanted: str) -> set[str]:
        return {row["domain"] for row in owner.get("mail-domains", **wanted).json()["data"]}

    assert found(search="ACME.ex") == {"acme.example", "mail.acme.example"}
    assert found(search="mail", state="claimed") == {"mail.acme.example"}
    assert found(state="proven") == set()
