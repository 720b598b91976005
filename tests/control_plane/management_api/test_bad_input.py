"""What cannot be read, is not on the allow-list or claims to be somebody else: refused, clearly,
and without effect."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Tenant
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]

FORBIDDEN = {
    "role": "owner",
    "tenant": "00000000-0000-4000-8000-000000000000",
    "tenant_id": "00000000-0000-4000-8000-000000000000",
    "balance": 10**9,
    "tier": "premium",
    "scopes": ["admin"],
    "is_suspended": False,
    "is_staff": True,
    "is_superuser": True,
    "created_at": "2001-01-01T00:00:00Z",
    "created_by": None,
    "closed_at": None,
    "revoked_at": None,
    "public_id": "0" * 16,
    "secret_digest": "00",
    "last_four": "0000",
    "id": "00000000-0000-4000-8000-000000000000",
    "password": "correct horse battery",
    "__proto__": {},
}


def calls(acme: House) -> list[tuple[str, str, dict[str, Any]]]:
    """Every call that takes a body, with one that it takes."""
    key, quota = f"keys/{acme.key.id}", f"quotas/{acme.quota.id}"
    project = {"project_id": str(acme.project.id)}
    return [
        ("POST", "/api/v1/session", {"email": "a@b.example", "password": "wrong"}),
        ("PATCH", "", {"name": "renamed"}),
        ("POST", "projects", {"name": "new"}),
        (
            "PATCH",
            f"projects/{acme.project.id}",
            {"name": "renamed", "on_saturation": "refuse", "smaller_model": None},
        ),
        ("POST", "keys", {"name": "new", "scopes": ["inference"], **project}),
        ("PATCH", key, {"name": "renamed", "scopes": ["inference"]}),
        ("POST", f"{key}/rotate", {"overlap_seconds": 1}),
        ("POST", f"{key}/revoke", {}),
        ("POST", "members", {"email": "new@acme.example", "role": "viewer"}),
        ("PATCH", f"members/{acme.members['viewer'].id}", {"role": "billing"}),
        ("POST", "quotas", {"limit": "tokens_per_month", "value": 1, **project}),
        ("PATCH", quota, {"value": 1}),
        ("DELETE", quota, {}),
        ("DELETE", f"members/{acme.members['viewer'].id}", {}),
        ("DELETE", "/api/v1/session", {}),
    ]


def send(client: ApiClient, method: str, path: str, body: object) -> Any:
    """One request, of which nothing remains."""
    cache.clear()
    point = transaction.savepoint()
    try:
        return client.send(method, path, body)
    finally:
        transaction.savepoint_rollback(point)


def stored() -> list[object]:
    """Of Acme and Globex all that a forbidden field could have changed."""
    with operator_scope("test"):
        return [
            list(model.objects.order_by("id").values()) for model in (Tenant, ApiKey, Membership)
        ]


def test_a_field_that_is_not_on_the_list_is_refused_by_name_and_changes_nothing(
    as_role: AsRole, acme: House
) -> None:
    owner = as_role("owner")
    before = stored()
    for method, path, body in calls(acme):
        for name, value in FORBIDDEN.items():
            if name in body:
                continue
            answer = owner.send(method, path, body | {name: value})
            cache.clear()
            # The one field of these that both calls take.
            is_taken = name == "scopes" and path.startswith("keys") and method == "PATCH"
            is_password = path.endswith("session") and name == "password"
            if is_taken or is_password:
                continue
            assert answer.status_code == 400, (method, path, name)
            assert answer.json()["error"]["param"] == name, (method, path)
    assert stored() == before


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 400, "JSON object"),
        (b"[]", 400, "one JSON object"),
        (b"null", 400, "one JSON object"),
        (b"[" * 60_000, 400, "nested too deeply"),
        (b'{"name": ' + b"[" * 50_000 + b"]" * 5_000, 400, "nested too deeply"),
        (b'{"name": "a", "name": "b"}', 400, "'name' is given more than once"),
        (b'{"name": NaN}', 400, "NaN is not JSON"),
        (b'{"name": ' + b"9" * 5000 + b"}", 400, "too large"),
        (b'{"name": 1e999}', 400, "'name'"),
        (b'{"name": "a\\u0000b"}', 400, "NUL"),
        (b'{"name": "\\ud800"}', 400, "surrogate"),
        (b'{"\\ud800": 1}', 400, "surrogate"),
        (b'{"\\ud800": 1, "\\ud800": 2}', 400, "more than once"),
        (b'{"name": "\xff"}', 400, "UTF-8"),
        ('{"name": "ü"}'.encode("utf-16"), 400, "UTF-8"),
        (b'{"name": "' + b"x" * 1_000_000 + b'"}', 413, "65536 bytes"),
        (b'{"name": "' + b"x" * 300 + b'"}', 400, "at most 200 characters"),
        (b'{"name": true}', 400, "'name': expected str, got bool"),
        (b'{"name": ["a"]}', 400, "'name'"),
        (b"{}", 400, "'name' is required"),
        (b"", 400, "'name' is required"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_body_that_cannot_be_read_is_told_why(
    as_role: AsRole, body: bytes, status: int, sentence: str
) -> None:
    answer = send(as_role("owner"), "POST", "projects", body)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("quotas", {"value": 2**63}, "value"),
        ("quotas", {"value": 0}, "value"),
        ("quotas", {"value": -1}, "value"),
        ("quotas", {"value": 1.5}, "value"),
        ("quotas", {"value": "1"}, "value"),
        ("quotas", {"value": True}, "value"),
        ("quotas", {"is_hard": "no"}, "is_hard"),
        ("quotas", {"limit": "everything"}, "limit"),
        ("quotas", {"project_id": "acme"}, "project_id"),
        ("quotas", {"project_id": 7}, "project_id"),
        ("keys", {"expires_at": "tomorrow"}, "expires_at"),
        ("keys", {"expires_at": 4102444800}, "expires_at"),
        ("keys", {"scopes": "admin"}, "scopes"),
        ("keys", {"allowed_networks": ["everywhere"]}, "allowed_networks"),
        ("keys", {"allowed_networks": [["10.0.0.0/8"]]}, "allowed_networks[0]"),
        ("keys", {"allowed_models": ["x"] * 101}, "allowed_models"),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused_by_name(
    as_role: AsRole, acme: House, path: str, fields: dict[str, Any], param: str
) -> None:
    (body,) = [body for method, at, body in calls(acme) if (method, at) == ("POST", path)]
    answer = send(as_role("owner"), "POST", path, body | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"content_type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content_type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ({"content_type": "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"),
        ({"content_type": "application/json; charset=latin-1"}, 201, None),
        ({"HTTP_ACCEPT": "text/html"}, 406, "not_acceptable"),
        ({"HTTP_ACCEPT": "application/*"}, 201, None),
        ({"HTTP_ACCEPT": "nonsense"}, 406, "not_acceptable"),
        ({"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": None}, 411, "length_required"),
        ({"HTTP_HOST": "evil.example"}, 400, "invalid_request"),
        ({"HTTP_X_TENANT": "another", "HTTP_X_HTTP_METHOD_OVERRIDE": "DELETE"}, 201, None),
    ],
    ids=str,
)
def test_headers_that_cannot_be_met_are_told_in_the_same_envelope(
    as_role: AsRole, headers: dict[str, Any], status: int, code: str | None
) -> None:
    client = as_role("owner")
    content_type = headers.pop("content_type", "application/json")
    url = f"{client.tenant}/projects"
    answer = client.http.generic("POST", url, b'{"name": "new"}', content_type, **headers)
    assert answer.status_code == status
    assert "no-store" in answer["Cache-Control"]
    assert code is None or answer.json()["error"]["code"] == code


def test_a_request_id_is_ours_whatever_the_caller_sends(as_role: AsRole) -> None:
    client = as_role("owner")
    ids = {
        client.http.get(client.tenant, headers={"x-request-id": "mine"})["X-Request-Id"]
        for _ in range(2)
    }
    assert len(ids) == 2 and "mine" not in ids


TEXTS = st.text(max_size=30) | st.sampled_from(
    ["\x00", "\u202e", "'; DROP TABLE tenants_tenant; --", "{{7*7}}", "../../etc/passwd", "admin"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "name", "email", "password", "role", "scopes", "project_id", "api_key_id", "limit", "value",
        "is_hard", "expires_at", "allowed_networks", "allowed_models", "allowed_adapters",
        "overlap_seconds", "tenant", "",
    ]
)  # fmt: skip


@given(data=st.data())
def test_no_body_makes_a_call_fail_inside(
    as_role: AsRole, acme: House, data: st.DataObject
) -> None:
    owner = as_role("owner")
    for method, path, good in calls(acme):
        changes = data.draw(st.dictionaries(FIELDS | TEXTS, VALUES, max_size=3))
        body = json.dumps(good | changes if data.draw(st.booleans()) else changes)
        answer = send(owner, method, path, body.encode(errors="replace"))
        _check(answer)


@given(
    part=TEXTS,
    query=st.dictionaries(
        st.sampled_from(["limit", "cursor", "from", "to", "format", "tenant"]) | TEXTS,
        TEXTS | st.integers().map(str) | st.dates().map(str) | st.just("null"),
        max_size=3,
    ),
)
def test_no_address_makes_a_call_fail_inside(
    as_role: AsRole, part: str, query: dict[str, str]
) -> None:
    owner = as_role("owner")
    for path in ("projects", "keys", "members", "quotas", "quota-alerts", "usage", "models"):
        _check(owner.get(path, **query))
        _check(owner.http.get(f"{owner.tenant}/{path}/{part}".replace("?", "%3f")))


def _check(answer: Any) -> None:
    assert answer.status_code < 500, answer.content
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "code", "param"}
    assert "no-store" in answer["Cache-Control"]


def test_a_tenant_named_in_other_ways_is_not_found(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    for name in (str(acme.tenant.id).upper(), acme.tenant.id.hex, "Acme", f"{{{uuid.uuid4()}}}"):
        assert owner.get(f"/api/v1/tenants/{name}").status_code == 404
