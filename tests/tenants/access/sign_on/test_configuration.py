"""What a tenant says of its provider and of its people."""

from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.exceptions import ValidationError
from pytest_django import Settings

from tenants import encryption
from tenants.access.people import change_role, leave, remove, transfer_ownership
from tenants.access.sign_on.check import sign_on_problems
from tenants.access.sign_on.configuration import configure, demand, remove_configuration, role_for
from tenants.audit.log import seal_now
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import (
    AuditEvent,
    Membership,
    SignOnConfiguration,
    SignOnIdentity,
    Tenant,
)
from tenants.offboarding.closing import close_tenant
from tenants.offboarding.export import tenant_records
from tenants.permissions import ROLE_PERMISSIONS, Role
from tests.support.refusals import raises_invalid
from tests.support.two_tenants import House, TwoTenants

pytestmark = pytest.mark.django_db
SECRET = "a-secret-of-acmes-client"
PROVIDER = {
    "issuer": "https://93.184.216.34",
    "client_id": "penstock",
    "client_secret": SECRET,
    "role_claim": "groups",
    "roles": {"ops": "admin"},
    "default_role": "viewer",
}


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    return houses.acme


def configured(house: House, **fields: Any) -> SignOnConfiguration:
    with tenant_scope(house.tenant.pk):
        return configure(house.tenant, **fields)


def test_what_is_not_given_stays(acme: House) -> None:
    configured(acme, **PROVIDER)
    stored = configured(acme, default_role="")
    assert (stored.issuer, stored.roles, stored.client_secret) == (
        PROVIDER["issuer"],
        {"ops": "admin"},
        SECRET,
    )
    assert stored.default_role == ""


@pytest.mark.parametrize("field", ["issuer", "client_id"])
def test_the_secret_is_sent_to_no_other_provider(field: str, acme: House) -> None:
    configured(acme, **PROVIDER)
    with raises_invalid("required", "client_secret"):
        configured(acme, **{field: "https://93.184.216.35"})


@pytest.mark.parametrize(
    "issuer",
    [
        "http://login.acme.example",
        "https://127.0.0.1",
        "https://10.0.0.1/realm",
        "https://[fd00::1]",
        "https://169.254.169.254",
        "https://user:word@93.184.216.34",
        "https://93.184.216.34/?a=b",
        "https://93.184.216.34/#a",
        "login.acme.example",
        "",
    ],
)
def test_an_issuer_is_a_public_https_address(issuer: str, acme: House) -> None:
    with pytest.raises(ValidationError) as refused:
        configured(acme, **(PROVIDER | {"issuer": issuer}))
    assert list(refused.value.error_dict) == ["issuer"]


@pytest.mark.parametrize(
    "roles", [{"ops": "king"}, {"": "admin"}, [], {"a" * 201: "admin"}, {"ops": ["admin"]}]
)
def test_roles_are_those_there_are(roles: object, acme: House) -> None:
    with raises_invalid("roles", "roles"):
        configured(acme, **(PROVIDER | {"roles": roles}))


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"groups": ["ops", "own"]}, "owner"),
        ({"groups": "ops"}, "admin"),
        ({"groups": {"ops": 1}}, "viewer"),
        ({"groups": [["ops"], None, 7]}, "viewer"),
        ({}, "viewer"),
    ],
)
def test_the_most_powerful_role_of_a_claim_counts(
    claims: dict[str, object], role: str, acme: House
) -> None:
    stored = configured(acme, **(PROVIDER | {"roles": {"ops": "admin", "own": "owner"}}))
    assert role_for(stored, claims) == role


def test_the_secret_outlives_a_rotation_of_the_secret_key(acme: House, settings: Settings) -> None:
    stored = configured(acme, **PROVIDER)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-secret-key-of-the-tests-" + "t" * 20
    assert stored.client_secret == SECRET
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(encryption.SecretLost):
        _ = stored.client_secret


def test_the_secret_is_neither_exported_nor_in_the_audit_log(acme: House) -> None:
    configured(acme, **PROVIDER)
    stored = configured(acme, client_secret="another-secret")
    encrypted = bytes(stored.encrypted_client_secret).decode()
    with operator_scope("test"):
        seal_now()
        told = str(list(tenant_records(acme.tenant)))
        events = AuditEvent.objects.filter(record_kind="tenants.SignOnConfiguration")
        told += str([event.changed_fields for event in events])
        assert events.count() == 2
    assert "another-secret" not in told and encrypted not in told and SECRET not in told
    assert PROVIDER["issuer"] in told  # type: ignore[operator]


def test_single_sign_on_is_demanded_where_a_provider_and_a_way_in_are(acme: House) -> None:
    owner = acme.people["owner"]

    def refusal() -> str | None:
        try:
            with tenant_scope(acme.tenant.pk):
                demand(acme.tenant, sign_on=True)
        except Conflict as error:
            return error.code
        return None

    assert refusal() == "no_provider"
    configured(acme, **PROVIDER)
    assert refusal() == "no_way_in"
    Authenticator.objects.create(user=owner, type=Authenticator.Type.TOTP, data={"secret": ""})
    assert refusal() is None
    with operator_scope("test"):
        assert Tenant.objects.get(pk=acme.tenant.pk).demands_sign_on


def test_a_provider_that_is_demanded_is_not_removed(acme: House) -> None:
    configured(acme, **PROVIDER)
    with operator_scope("test"):
        Tenant.objects.filter(pk=acme.tenant.pk).update(demands_sign_on=True)
    with pytest.raises(Conflict) as refused, tenant_scope(acme.tenant.pk):
        remove_configuration(acme.tenant)
    assert refused.value.code == "sign_on_demanded"
    with tenant_scope(acme.tenant.pk):
        demand(acme.tenant, sign_on=False)
        remove_configuration(acme.tenant)
        assert not SignOnConfiguration.objects.exists()


def test_nothing_of_it_is_left_of_a_closed_tenant(acme: House) -> None:
    configured(acme, **PROVIDER)
    with operator_scope("test"):
        SignOnIdentity.objects.create(
            tenant=acme.tenant, user=acme.people["owner"], issuer="https://a.example", subject="a"
        )
        close_tenant(acme.tenant)
        for rows in (SignOnConfiguration.objects, SignOnIdentity.objects):
            assert not rows.filter(tenant=acme.tenant).exists()


def test_fsck_finds_what_cannot_be_used_and_what_shuts_people_out(
    acme: House, settings: Settings
) -> None:
    def found() -> int:
        with operator_scope("test"):
            return len(list(sign_on_problems()))

    assert found() == 0
    configured(acme, **PROVIDER)
    with operator_scope("test"):
        Tenant.objects.filter(pk=acme.tenant.pk).update(demands_sign_on=True)
    assert found() == 1  # no way in
    owner = acme.people["owner"]
    Authenticator.objects.create(user=owner, type=Authenticator.Type.TOTP, data={"secret": ""})
    assert found() == 0
    settings.SECRET_KEY = "another-secret-key-of-the-tests-" + "t" * 20
    assert found() == 1
    with operator_scope("test"):
        SignOnConfiguration.objects.all().delete()
    assert found() == 1  # no provider


def _go(house: House, how: str) -> None:
    owner, heir = (_membership(house, name) for name in ("owner", "admin"))
    match how:
        case "removed":
            remove(owner, by=ROLE_PERMISSIONS[Role.OWNER])
        case "demoted":
            change_role(owner, Role.VIEWER, by=ROLE_PERMISSIONS[Role.OWNER])
        case "left":
            leave(owner)
        case "handed_over":
            transfer_ownership(heir, by=owner)


def _membership(house: House, name: str) -> Membership:
    return Membership.objects.get(user=house.people[name])


@pytest.mark.parametrize("how", ["removed", "demoted", "left", "handed_over"])
def test_the_last_owner_who_gets_in_without_the_provider_stays_one(how: str, acme: House) -> None:
    owner, admin = (acme.people[name] for name in ("owner", "admin"))
    configured(acme, **PROVIDER)
    Authenticator.objects.create(user=owner, type=Authenticator.Type.TOTP, data={"secret": ""})
    with tenant_scope(acme.tenant.pk):
        if how != "handed_over":
            Membership.objects.filter(user=admin).update(role=Role.OWNER)
        demand(acme.tenant, sign_on=True)
    with pytest.raises(Conflict) as refused, tenant_scope(acme.tenant.pk):
        _go(acme, how)
    assert refused.value.code == "no_way_in"
    with tenant_scope(acme.tenant.pk):
        assert _membership(acme, "owner").role == Role.OWNER

    Authenticator.objects.create(user=admin, type=Authenticator.Type.TOTP, data={"secret": ""})
    with tenant_scope(acme.tenant.pk):
        _go(acme, how)
        assert _membership(acme, "admin").role == Role.OWNER
    with operator_scope("test"):
        assert list(sign_on_problems()) == []
