"""Whoever may ask, by the columns of the table: a header or a session."""

from dataclasses import dataclass

from django.test import Client
from django.utils import timezone

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, User
from tests.support.two_tenants import TwoTenants


@dataclass(frozen=True, kw_only=True)
class Credential:
    """One column's."""

    user: User | None = None
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self) -> Client:
        client = Client()
        if self.user is not None:
            client.force_login(self.user)
        return client


def credentials(houses: TwoTenants) -> dict[str, Credential]:
    acme, globex = houses.acme, houses.globex
    revoked, expired = (acme.issue(scopes=["inference", "admin"]) for _ in range(2))
    with operator_scope("test"):
        key = ApiKey.objects.find(revoked)
        assert key is not None
        key.revoke()
        ApiKey.objects.filter(public_id=expired.split("-")[1]).update(expires_at=timezone.now())
    return {
        "nobody": Credential(),
        "viewer": Credential(user=acme.people["viewer"]),
        "admin": Credential(user=acme.people["admin"]),
        "inference": Credential(key=acme.issue(scopes=["inference"])),
        "usage:read": Credential(key=acme.issue(scopes=["usage:read"])),
        "adapters:write": Credential(key=acme.issue(scopes=["adapters:write"])),
        "keys:write": Credential(key=acme.issue(scopes=["keys:write"])),
        "admin key": Credential(key=acme.issue(scopes=["admin"])),
        "revoked": Credential(key=revoked),
        "expired": Credential(key=expired),
        "Globex": Credential(user=globex.people["owner"]),
        "Globex key": Credential(key=globex.issue(scopes=["inference", "admin"])),
    }
