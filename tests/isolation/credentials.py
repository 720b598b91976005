"""Whoever may ask, by the columns of the table: a header or a session."""

from dataclasses import dataclass, field

from django.test import Client
from django.utils import timezone

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, User
from tests.support.two_tenants import TwoTenants


@dataclass(frozen=True, kw_only=True)
class Credential:
    """One column's."""

    key: str = ""
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self) -> Client:
        client = Client()
        client.cookies.load(self.cookies)
        return client


def signed_in(user: User) -> Credential:
    client = Client()
    client.force_login(user)
    return Credential(cookies={name: each.value for name, each in client.cookies.items()})


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
        "viewer": signed_in(acme.people["viewer"]),
        "admin": signed_in(acme.people["admin"]),
        "inference": Credential(key=acme.issue(scopes=["inference"])),
        "usage:read": Credential(key=acme.issue(scopes=["usage:read"])),
        "adapters:write": Credential(key=acme.issue(scopes=["adapters:write"])),
        "keys:write": Credential(key=acme.issue(scopes=["keys:write"])),
        "admin key": Credential(key=acme.issue(scopes=["admin"])),
        "revoked": Credential(key=revoked),
        "expired": Credential(key=expired),
        "Globex": signed_in(globex.people["owner"]),
        "Globex key": Credential(key=globex.issue(scopes=["inference", "admin"])),
    }
