"""Mail domains, with a DNS of the test's own."""

from collections.abc import Iterator

import pytest

from tenants.access.sign_on.domains import (
    add_domain,
    prove_domain,
    remove_domain,
    tenant_of_address,
    texts_at,
    verify_domain,
)
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import MailDomain, SignOnConfiguration, Tenant
from tests.support.refusals import raises_invalid
from tests.support.sign_on.dns_server import a_dns_server
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
Records = dict[str, list[str]]


@pytest.fixture
def records() -> Iterator[Records]:
    with a_dns_server() as records:
        yield records


def claimed(tenant: Tenant, domain: str = "acme.example") -> MailDomain:
    with tenant_scope(tenant.pk):
        return add_domain(tenant, domain=domain)


def verified(domain: MailDomain) -> MailDomain:
    texts = texts_at(domain.tenant_id, domain.pk)
    with tenant_scope(domain.tenant_id):
        return verify_domain(domain, texts)


def test_the_right_record_proves_a_domain(houses: TwoTenants, records: Records) -> None:
    domain = claimed(houses.acme.tenant)
    assert domain.record_name == "_penstock-challenge.acme.example"
    records[domain.record_name] = ["v=spf1 -all", domain.record_value]
    assert verified(domain).proven_by == "dns"


@pytest.mark.parametrize("texts", [[], ["penstock-domain-verification="], ["another"]])
def test_another_record_proves_nothing(
    texts: list[str], houses: TwoTenants, records: Records
) -> None:
    domain = claimed(houses.acme.tenant)
    records[domain.record_name] = texts
    with pytest.raises(Conflict) as refused:
        verified(domain)
    assert refused.value.code == "record_not_found"


def test_the_record_of_one_tenant_proves_nothing_for_another(
    houses: TwoTenants, records: Records
) -> None:
    theirs, ours = claimed(houses.globex.tenant), claimed(houses.acme.tenant)
    records[ours.record_name] = [theirs.record_value]
    with pytest.raises(Conflict):
        verified(ours)


def test_a_domain_belongs_to_one_tenant_once_proven(houses: TwoTenants, records: Records) -> None:
    theirs, ours = claimed(houses.globex.tenant), claimed(houses.acme.tenant)
    records[ours.record_name] = [theirs.record_value, ours.record_value]
    verified(theirs)
    with pytest.raises(Conflict) as refused:
        verified(ours)
    assert refused.value.code == "domain_taken"
    with tenant_scope(theirs.tenant_id):
        remove_domain(theirs)
    assert verified(ours).is_proven


def test_an_operator_proves_a_domain_without_dns(houses: TwoTenants) -> None:
    domain = claimed(houses.acme.tenant)
    with operator_scope("test"):
        assert prove_domain(domain).proven_by == "operator"


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("Acme.Example", "acme.example"),
        (" @acme.example. ", "acme.example"),
        ("bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_a_domain_is_taken_as_people_type_it(typed: str, stored: str, houses: TwoTenants) -> None:
    assert claimed(houses.acme.tenant, typed).domain == stored


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "acme",
        "a b.example",
        "alice@acme.example",
        "-a.example",
        "1.2.3.4",
        "a..b",
        "x" * 64 + ".example",
        "é" * 80 + ".example",
        "a.exa_mple",
    ],
)
def test_what_is_no_domain_is_refused(typed: str, houses: TwoTenants) -> None:
    with raises_invalid("domain", "domain"):
        claimed(houses.acme.tenant, typed)


def test_an_address_leads_to_a_tenant_that_has_proven_it_and_has_a_provider(
    houses: TwoTenants,
) -> None:
    acme = houses.acme.tenant
    domain = claimed(acme)
    assert tenant_of_address("alice@acme.example") is None
    with operator_scope("test"):
        prove_domain(domain)
        assert tenant_of_address("alice@acme.example") is None
        configuration = SignOnConfiguration(tenant=acme, issuer="https://a.example", client_id="a")
        configuration.client_secret = "s" * 20
        configuration.save()
    assert tenant_of_address("alice@ACME.example") == acme.pk
    assert tenant_of_address("alice@sub.acme.example") is None
