"""The life of API keys by the API, and keys as callers of it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tenants import key_format
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Tenant
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]
WithScopes = Callable[..., ApiClient]


def test_a_key_is_shown_once_and_works(as_role: AsRole, acme: House) -> None:
    developer = as_role("developer")
    made = developer.post(
        "keys",
        {
            "project_id": str(acme.project.id),
            "name": "dashboard",
            "scopes": ["usage:read", "keys:write"],
            "expires_at": "2099-01-01T00:00:00Z",
            "allowed_networks": ["127.0.0.0/8"],
        },
    )
    assert made.status_code == 201
    key, record = made.json()["key"], made.json()
    assert record["masked"].endswith(key[-4:]) and record["allowed_networks"] == ["127.0.0.0/8"]
    client = ApiClient(acme.tenant.id, key=key)
    assert client.get("usage").status_code == 200
    secret = key.split("-")[2]
    for path in ("keys", f"keys/{record['id']}", "/api/v1/me"):
        assert secret not in client.get(path).content.decode()
    with operator_scope("test"):
        assert ApiKey.objects.get(id=record["id"]).created_by == acme.people["developer"]


def test_a_rotated_key_keeps_its_id_and_the_old_secret_as_long_as_was_said(
    as_role: AsRole, acme: House
) -> None:
    admin = as_role("admin")
    old = acme.issue(scopes=["keys:write"])
    old_client = ApiClient(acme.tenant.id, key=old)
    key_id = old_client.get("/api/v1/me").json()["id"]
    rotated = admin.post(f"keys/{key_id}/rotate", {"overlap_seconds": 3600}).json()
    new_client = ApiClient(acme.tenant.id, key=rotated["key"])
    assert rotated["id"] == key_id and rotated["key"] != old
    assert [client.get("keys").status_code for client in (old_client, new_client)] == [200, 200]
    again = admin.post(f"keys/{key_id}/rotate")
    # The second rotation left the first key no time at all, and the oldest is forgotten.
    assert new_client.get("keys").json()["error"]["code"] == "api_key_rotated"
    assert old_client.get("keys").json()["error"]["code"] == "invalid_api_key"
    statuses = [client.get("keys").status_code for client in (old_client, new_client)]
    assert (again.status_code, statuses) == (200, [401, 401])


def test_a_revoked_key_is_refused_from_the_next_call_on(as_role: AsRole, acme: House) -> None:
    key = acme.issue(scopes=["admin"])
    client = ApiClient(acme.tenant.id, key=key)
    key_id = client.get("/api/v1/me").json()["id"]
    refused = as_role("developer").post(f"keys/{key_id}/revoke")
    assert refused.status_code == 400
    assert "may do what you may not" in refused.json()["error"]["message"]
    assert client.get("keys").status_code == 200
    first = as_role("admin").post(f"keys/{key_id}/revoke").json()["revoked_at"]
    assert as_role("admin").post(f"keys/{key_id}/revoke").json()["revoked_at"] == first
    error = client.get().json()["error"]
    assert (error["code"], error["message"]) == (
        "api_key_revoked",
        "This API key has been revoked.",
    )
    assert as_role("admin").post(f"keys/{key_id}/rotate").status_code == 400


def test_a_change_narrows_a_key_and_never_gives_it_more_scopes(
    as_role: AsRole, acme: House
) -> None:
    owner = as_role("owner")
    path = f"keys/{acme.key.id}"
    widened = owner.patch(path, {"scopes": ["inference", "usage:read"]})
    assert (widened.status_code, widened.json()["error"]["param"]) == (400, "scopes")
    changed = owner.patch(
        path, {"name": "renamed", "allowed_models": ["acme-model"], "expires_at": None}
    ).json()
    assert (changed["name"], changed["allowed_models"]) == ("renamed", ["acme-model"])
    assert changed["scopes"] == ["inference"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"scopes": ["admin"]}, "scopes"),
        ({"scopes": ["usage:read"]}, "scopes"),
        ({"expires_at": None}, "expires_at"),
        ({"allowed_networks": ["0.0.0.0/0"]}, "allowed_networks"),
        ({"allowed_models": None}, "allowed_models"),
    ],
)
def test_a_key_makes_none_that_is_wider_than_itself(
    with_scopes: WithScopes, acme: House, fields: dict[str, Any], param: str
) -> None:
    maker = with_scopes(
        "keys:write",
        expires_at=timezone.now() + timedelta(days=1),
        allowed_networks=["127.0.0.1"],
        allowed_models=["acme-model"],
    )
    project = {"project_id": str(acme.project.id)}
    refused = maker.post("keys", {**project, "scopes": ["keys:write"], **fields})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    made = maker.post("keys", {**project, "scopes": ["keys:write"]})
    assert made.status_code == 201
    assert made.json()["allowed_models"] == ["acme-model"]


def test_a_developer_makes_no_admins_key(as_role: AsRole, acme: House) -> None:
    body = {"project_id": str(acme.project.id), "scopes": ["admin"]}
    refused = as_role("developer").post("keys", body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "scopes")
    wide = acme.issue(scopes=["admin"])
    key_id = ApiClient(acme.tenant.id, key=wide).get("/api/v1/me").json()["id"]
    # With its new secret a developer could do what an admin may.
    rotated = as_role("developer").post(f"keys/{key_id}/rotate")
    assert rotated.status_code == 400 and "key" not in rotated.json()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"allowed_networks": ["10.0.0.1/8"]}, "allowed_networks"),
        ({"allowed_models": ["zeppelin-model"]}, "allowed_models"),
        ({"allowed_models": ["no-such-model"]}, "allowed_models"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00"}, "expires_at"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes[0]"),
        ({"project_id": "00000000-0000-4000-8000-000000000000"}, "project_id"),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_name(
    as_role: AsRole, acme: House, fields: dict[str, Any], param: str
) -> None:
    body = {"project_id": str(acme.project.id), "name": "web"} | fields
    answer = as_role("owner").post("keys", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_key_is_refused_in_the_words_that_fit(acme: House, globex: House) -> None:
    def refusal(key: str) -> tuple[int, str]:
        answer = ApiClient(acme.tenant.id, key=key).get("usage")
        return answer.status_code, answer.json()["error"]["code"]

    expired, elsewhere = acme.issue(scopes=["admin"]), acme.issue(scopes=["admin"])
    with operator_scope("test"):
        ApiKey.objects.filter(public_id=expired.split("-")[1]).update(expires_at=timezone.now())
        ApiKey.objects.filter(public_id=elsewhere.split("-")[1]).update(
            allowed_networks=["192.0.2.0/24"]
        )
    assert refusal(expired) == (401, "api_key_expired")
    assert refusal(elsewhere) == (403, "address_not_allowed")
    assert refusal(elsewhere[:-1] + ("1" if elsewhere.endswith("0") else "0")) == (
        401,
        "invalid_api_key",
    )
    assert refusal("nonsense") == (401, "invalid_api_key")
    works = acme.issue(scopes=["admin"])
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(is_suspended=True)
    assert refusal(works) == (403, "tenant_suspended")


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "192.0.2.7"},
        {"forwarded": "for=192.0.2.7"},
        {"x-real-ip": "192.0.2.7"},
        {"x-forwarded-host": "testserver"},
    ],
)
def test_an_address_cannot_be_claimed_by_a_header(acme: House, headers: dict[str, str]) -> None:
    key = acme.issue(scopes=["admin"], allowed_networks=["192.0.2.0/24"])
    client = ApiClient(acme.tenant.id, key=key)
    url, credential = f"{client.tenant}/usage", {"authorization": f"Bearer {key}"}
    assert client.http.get(url, headers=credential | headers).status_code == 403
    assert client.http.get(url, headers=credential, REMOTE_ADDR="192.0.2.7").status_code == 200
    assert (
        client.http.get(url, headers=credential, REMOTE_ADDR="::ffff:192.0.2.7").status_code == 200
    )


@pytest.mark.usefixtures("one_window")
@pytest.mark.parametrize("wrong", ["one key", "many keys", "many keys of one /64"])
def test_guessing_keys_is_stopped_and_holds_up_no_key_that_works(acme: House, wrong: str) -> None:
    """One client behind a NAT guesses; the other's key works on."""
    client = ApiClient(acme.tenant.id)

    def use(key: str, address: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        path = f"{client.tenant}/usage"
        return client.http.get(path, headers=headers, REMOTE_ADDR=address).status_code

    keys = [key_format.generate() for _ in range(25)]
    same = ["192.0.2.9"] * 25
    of_a_network = [f"2001:db8:1:2::{number:x}" for number in range(25)]
    addresses = of_a_network if wrong == "many keys of one /64" else same
    statuses = [
        use(keys[0] if wrong == "one key" else key, address)
        for key, address in zip(keys, addresses, strict=True)
    ]
    assert statuses[0] == 401 and statuses[-1] == 429
    works = acme.issue(scopes=["admin"])
    assert use(works, addresses[0]) == 200


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "", "Bearer  ", "pk-abc", "Bearer \xff"])
def test_a_header_that_is_no_credential_is_told_what_one_looks_like(
    acme: House, header: str
) -> None:
    client = ApiClient(acme.tenant.id)
    answer = client.http.get(client.tenant, headers={"authorization": header})
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Bearer"


def test_a_key_needs_no_csrf_token_and_a_cookie_beside_it_changes_nothing(
    acme: House, globex: House
) -> None:
    client = ApiClient(
        acme.tenant.id, user=globex.people["owner"], key=acme.issue(scopes=["admin"])
    )
    client.http.handler.enforce_csrf_checks = True
    assert client.post("projects", {"name": "web"}).status_code == 201
    assert client.get(f"/api/v1/tenants/{globex.tenant.id}").status_code == 404
