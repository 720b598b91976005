"""What people and keys can look at."""

from collections.abc import Callable

import pytest

from tenants.permissions import Role
from tests.support.api_client import ApiClient
from tests.support.two_tenants import CANARY, House

AsRole = Callable[[str], ApiClient]
WithScopes = Callable[..., ApiClient]


@pytest.mark.parametrize("role", Role)
def test_everybody_of_a_tenant_sees_what_it_has(as_role: AsRole, acme: House, role: Role) -> None:
    client = as_role(role)
    tenant = client.get().json()
    assert (tenant["name"], tenant["role"], tenant["tier"]) == ("Acme", role, "premium")
    assert [row["name"] for row in client.get("projects").json()["data"]] == ["acme project"]
    assert client.get(f"projects/{acme.project.id}").json()["name"] == "acme project"
    assert [row["id"] for row in client.get("models").json()["data"]] == [
        "acme-model",
        "public-model",
    ]
    assert client.get("tier").json()["requests_per_minute"] > 0
    quotas = client.get("quotas").json()
    assert {row["scope"] for row in quotas["data"]} == {"tenant", "project"}
    assert quotas["tier"]["limits"]["requests_per_minute"] > 0
    assert [row["percent"] for row in client.get("quota-alerts").json()["data"]] == [50]


def test_usage_is_summed_by_day_and_project(as_role: AsRole, acme: House) -> None:
    usage = as_role("viewer").get("usage", **{"from": "2026-01-01", "to": "2026-01-31"}).json()
    assert usage["data"] == [
        {
            "object": "usage.total",
            "date": "2026-01-02",
            "project_id": str(acme.project.id),
            "project_name": "acme project",
            "requests": 1,
            "completed": 1,
            "cancelled": 0,
            "refused": 0,
            "expired": 0,
            "failed": 0,
            "prompt_tokens": 3,
            "cached_tokens": 1,
            "completion_tokens": 4,
            "reasoning_tokens": 0,
            "wasted_tokens": 0,
            "ttft_ms": dict.fromkeys(("p50", "p95", "p99"), pytest.approx(20, rel=0.05)),
            "inter_token_ms": dict.fromkeys(("p50", "p95", "p99")),
            "duration_ms": dict.fromkeys(("p50", "p95", "p99"), pytest.approx(400, rel=0.05)),
            "queue_ms": dict.fromkeys(("p50", "p95", "p99")),
        }
    ]
    assert as_role("viewer").get("usage", to="2025-12-31").json()["data"] == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"from": "2026-02-01", "to": "2026-01-01"}, "from"),
        ({"from": "2020-01-01", "to": "2026-01-01"}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"to": "0001-01-01", "limit": "0"}, "limit"),
        ({"tenant": "another"}, "tenant"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"limit": "201"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": " 1"}, "limit"),
        ({"limit": "1_0"}, "limit"),
        ({"from": "2026-1-1"}, "from"),
        ({"to": "20260101"}, "to"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(
    as_role: AsRole, query: dict[str, str], param: str
) -> None:
    answer = as_role("viewer").get("usage", **query)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_the_ends_of_the_calendar_are_days_like_others(as_role: AsRole, day: str) -> None:
    assert as_role("viewer").get("usage", to=day).json()["data"] == []
    assert as_role("viewer").get("usage", **{"from": day, "to": day}).json()["data"] == []


def test_me_tells_a_person_their_tenants_and_permissions(as_role: AsRole, acme: House) -> None:
    me = as_role("developer").get("/api/v1/me").json()
    assert me["email"] == "developer@acme.example"
    (tenant,) = me["tenants"]
    assert (tenant["id"], tenant["role"]) == (str(acme.tenant.id), "developer")
    assert "write_keys" in tenant["permissions"] and "write_people" not in tenant["permissions"]
    listed = as_role("developer").get("/api/v1/tenants").json()["data"]
    assert [(row["name"], row["role"]) for row in listed] == [("Acme", "developer")]


def test_me_tells_a_key_what_it_may(with_scopes: WithScopes, acme: House) -> None:
    me = with_scopes("usage:read", name="dashboard").get("/api/v1/me").json()
    assert (me["name"], me["project"]["name"]) == ("dashboard", "acme project")
    assert me["tenants"][0]["permissions"] == ["view_usage"]


@pytest.mark.parametrize(
    ("scope", "path", "status"),
    [
        ("inference", "", 403),
        ("inference", "usage", 403),
        ("usage:read", "usage", 200),
        ("usage:read", "projects", 403),
        ("keys:write", "projects", 200),
        ("keys:write", "members", 403),
        ("adapters:write", "projects", 403),
        ("admin", "members", 200),
        ("admin", "usage", 200),
    ],
)
def test_a_key_reads_what_its_scope_says(
    with_scopes: WithScopes, scope: str, path: str, status: int
) -> None:
    assert with_scopes(scope).get(path).status_code == status


def test_a_refused_key_is_told_the_scope_it_lacks(with_scopes: WithScopes) -> None:
    error = with_scopes("inference").get("usage").json()["error"]
    assert error["code"] == "missing_scope"
    assert "`usage:read`; this one has `inference`" in error["message"]
    refused = with_scopes("inference").get("/api/v1/tenants")
    assert refused.status_code == 403 and "`keys:write`" in refused.json()["error"]["message"]


def test_a_refused_person_is_told_who_may(as_role: AsRole) -> None:
    error = as_role("viewer").get("members").json()["error"]
    assert error["code"] == "missing_role"
    assert "viewer" in error["message"] and "owner, admin" in error["message"]


def test_a_long_list_is_given_in_pages_that_leave_nothing_out(as_role: AsRole) -> None:
    client = as_role("owner")
    for number in range(6):
        client.post("projects", {"name": f"project {number}"})
    names: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get("projects", limit=3, **cursor).json()
        names += [row["name"] for row in page["data"]]
        assert len(page["data"]) <= 3
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert names == [f"project {number}" for number in range(5, -1, -1)] + ["acme project"]


def test_a_cursor_of_one_list_is_none_of_another(as_role: AsRole) -> None:
    client = as_role("owner")
    client.post("projects", {"name": "second"})
    cursor = client.get("projects", limit=1).json()["next_cursor"]
    assert client.get("members", cursor=cursor).json()["error"]["code"] == "bad_cursor"


def test_another_tenants_model_is_not_seen_also_where_nobody_else_may(
    as_role: AsRole, globex: House
) -> None:
    answer = as_role("owner").get("models")
    assert answer.status_code == 200 and CANARY not in answer.content.decode()


def test_what_a_key_may_not_name_it_does_not_see(with_scopes: WithScopes) -> None:
    client = with_scopes("admin", allowed_models=["public-model"])
    assert [row["id"] for row in client.get("models").json()["data"]] == ["public-model"]
