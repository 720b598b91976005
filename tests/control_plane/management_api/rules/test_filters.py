"""Lists narrowed by filters and a search, and what becomes of their cursors."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from control_plane.management_api.viewsets import ManagementViewSet
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]
NOBODY = "00000000-0000-4000-8000-000000000000"


def names(answer: Any, field: str = "name") -> list[Any]:
    assert answer.status_code == 200, answer.content
    return sorted(row[field] for row in answer.json()["data"])


def list_views() -> Iterator[type[ManagementViewSet]]:
    """Every viewset that lists something."""

    def patterns(resolver: URLResolver) -> Iterator[URLPattern]:
        for each in resolver.url_patterns:
            if isinstance(each, URLResolver):
                yield from patterns(each)
            else:
                yield each

    for pattern in patterns(get_resolver()):
        view = getattr(pattern.callback, "cls", None)
        actions = getattr(pattern.callback, "actions", {})
        if view is not None and actions.get("get") == "list":
            yield view


@pytest.fixture
def keys(acme: House) -> dict[str, ApiKey]:
    """Of Acme's first project: one active, one expired, one revoked, one by its admin."""
    made = {}
    for name in ("active one", "expired one", "revoked one"):
        acme.issue(name=name)
        with operator_scope("test"):
            made[name.split()[0]] = ApiKey.objects.get(name=name)
    with operator_scope("test"):
        past = timezone.now() - timedelta(seconds=1)
        ApiKey.objects.filter(id=made["expired"].id).update(expires_at=past)
        ApiKey.objects.filter(id=made["revoked"].id).update(revoked_at=past, expires_at=past)
        ApiKey.objects.filter(id=made["active"].id).update(created_by=acme.people["admin"])
    return made


def test_every_list_can_be_narrowed() -> None:
    bare = {
        view.__name__
        for view in list_views()
        if view.filterset_class is None and "list" not in view.__dict__
    }
    # Reports have filters of their own.
    reports = re.compile("Usage|Costs|Errors")
    assert {name for name in bare if reports.search(name) is None} == set()


@pytest.mark.parametrize("state", ["active", "expired", "revoked"])
def test_keys_are_found_by_state(as_role: AsRole, keys: dict[str, ApiKey], state: str) -> None:
    found = names(as_role("viewer").get("keys", state=state, search="one"))
    assert found == [f"{state} one"]


def test_keys_are_found_by_name_search_creator_and_project(
    as_role: AsRole, acme: House, keys: dict[str, ApiKey]
) -> None:
    viewer = as_role("viewer")
    key = keys["active"]
    assert names(viewer.get("keys", name="CTIVE ON")) == ["active one"]
    assert names(viewer.get("keys", search=key.public_id)) == ["active one"]
    assert names(viewer.get("keys", name="%")) == []
    creator = viewer.get(f"keys/{key.id}").json()["created_by_id"]
    assert creator == str(acme.people["admin"].id)
    assert names(viewer.get("keys", created_by_id=creator)) == ["active one"]
    in_project = viewer.get("keys", project_id=str(acme.project.id), name="one")
    assert len(names(in_project)) == 3
    assert names(viewer.get("keys", project_id=NOBODY)) == []


def test_a_filter_of_a_project_of_another_tenant_finds_nothing(
    as_role: AsRole, globex: House
) -> None:
    assert names(as_role("owner").get("keys", project_id=str(globex.project.id))) == []
    assert names(as_role("owner").get("quotas", project_id=str(globex.project.id)), "id") == []


def test_people_quotas_projects_and_money_are_found(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    assert names(owner.get("members", role="billing"), "email") == ["billing@acme.example"]
    assert names(owner.get("members", search="VIEWER@"), "email") == ["viewer@acme.example"]
    assert names(owner.get("quotas", scope="project"), "project_id") == [str(acme.project.id)]
    assert {row["scope"] for row in owner.get("quotas", scope="tenant").json()["data"]} == {
        "tenant"
    }
    assert names(owner.get("projects", search="ACME")) == ["acme project"]
    assert names(owner.get("projects", name="nothing like it")) == []
    assert {row["kind"] for row in owner.get("transactions", kind="top_up").json()["data"]} <= {
        "top_up"
    }
    assert {row["state"] for row in owner.get("invoices", state="issued").json()["data"]} <= {
        "issued"
    }
    assert names(owner.get("models", search="ACME"), "id") == ["acme-model"]
    assert names(owner.get("/api/v1/tenants", role="owner", search="acm")) == ["Acme"]
    assert names(owner.get("/api/v1/tenants", role="viewer")) == []
    assert names(owner.get("webhooks", state="disabled"), "id") == []


@pytest.mark.parametrize(
    ("path", "param", "value"),
    [
        ("keys", "state", "lost"),
        ("keys", "state", "active,revoked"),
        ("keys", "project_id", "acme"),
        ("keys", "project_id", ""),
        ("keys", "state", ""),
        ("keys", "search", ""),
        ("keys", "name", "x" * 201),
        ("keys", "creator", "somebody"),
        ("keys", "name__contains", "a"),
        ("audit", "since", "yesterday"),
        ("audit", "since", "2026-01-01T00:00:00"),
        ("audit", "since", "2026-02-30"),
        ("audit", "before", "0001-01-01T00:00:00+23:59"),
        ("audit", "actor_kind", "robot"),
        ("audit", "at", "2026-01-01"),
        ("invoices", "state", "draft"),
        ("transactions", "kind", "gift"),
        ("members", "role", "king"),
        ("quotas", "scope", "world"),
        ("quota-alerts", "quota_id", "1"),
        ("webhooks", "state", "on"),
        ("projects", "tenant_id", NOBODY),
        ("/api/v1/tenants", "role", "king"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_by_name(
    as_role: AsRole, path: str, param: str, value: str
) -> None:
    answer = as_role("owner").get(path, **{param: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("query", ["search=%00", "name=a%00b", "state=active&state=revoked"])
def test_a_nul_or_a_filter_given_twice_is_refused(as_role: AsRole, query: str) -> None:
    client = as_role("owner")
    assert client.get(f"{client.tenant}/keys?{query}").status_code == 400


def test_one_record_takes_no_filter(as_role: AsRole, acme: House) -> None:
    answer = as_role("owner").get(f"keys/{acme.key.id}", state="revoked")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "state")


def test_a_narrowed_list_is_given_in_pages_that_leave_nothing_out(as_role: AsRole) -> None:
    owner = as_role("owner")
    for number in range(5):
        owner.post("projects", {"name": f"narrow {number}"})
        owner.post("projects", {"name": f"other {number}"})
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = owner.get("projects", search="narrow", limit=2, **cursor).json()
        found += [row["name"] for row in page["data"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert found == [f"narrow {number}" for number in range(4, -1, -1)]


def test_a_cursor_of_other_filters_is_refused(as_role: AsRole) -> None:
    owner = as_role("owner")
    for number in range(3):
        owner.post("projects", {"name": f"narrow {number}"})
    narrowed = owner.get("projects", search="narrow", limit=1).json()["next_cursor"]
    everything = owner.get("projects", limit=1).json()["next_cursor"]
    assert owner.get("projects", search="narrow", cursor=narrowed).status_code == 200
    for query in (
        {"cursor": narrowed},
        {"cursor": narrowed, "search": "other"},
        {"cursor": narrowed, "name": "narrow"},
        {"cursor": everything, "search": "narrow"},
    ):
        assert owner.get("projects", **query).json()["error"]["code"] == "bad_cursor", query
