"""Whoever alone gets into an organisation while its provider is down keeps their second factor."""

import pytest
from allauth.mfa.models import Authenticator

from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Tenant
from tenants.permissions import Role
from tests.support.accounts.browser import Browser
from tests.support.two_tenants import PASSWORD, House

# allauth tells of an authenticator that is gone once it is committed.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("kind", ["totp", "webauthn"])
def test_the_last_way_in_stays_until_another_owner_has_one(
    kind: str, alice: Browser, acme: House
) -> None:
    owner, admin = (acme.people[name] for name in ("owner", "admin"))
    alice.submit("/account/reauthenticate/", password=PASSWORD)
    kept = Authenticator.objects.create(user=owner, type=kind, data={"name": "laptop"})
    off = {
        "totp": "/account/2fa/totp/deactivate/",
        "webauthn": f"/account/2fa/passkeys/{kept.pk}/remove/",
    }[kind]
    with operator_scope("test"):
        Tenant.objects.filter(pk=acme.tenant.pk).update(demands_sign_on=True)
    refused = alice.submit(off).content.decode()
    assert "only you get in while its provider is down" in refused
    assert Authenticator.objects.filter(pk=kept.pk).exists()

    with operator_scope("test"):
        Membership.objects.filter(user=admin).update(role=Role.OWNER)
    Authenticator.objects.create(user=admin, type="totp", data={"secret": ""})
    assert alice.submit(off).status_code == 302
    assert not Authenticator.objects.filter(pk=kept.pk).exists()
