"""How often one caller may call."""

from collections.abc import Callable

import pytest
from pytest_django.fixtures import Settings

from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

pytestmark = pytest.mark.usefixtures("one_window")

AsRole = Callable[[str], ApiClient]
WithScopes = Callable[..., ApiClient]


@pytest.fixture(autouse=True)
def _three_calls(settings: Settings) -> None:
    settings.PENSTOCK_API_CALLS_PER_MINUTE = 3


def statuses(client: ApiClient, count: int, path: str = "projects") -> list[int]:
    return [client.get(path).status_code for _ in range(count)]


def test_a_caller_who_calls_too_often_is_told_when_to_return(as_role: AsRole) -> None:
    owner = as_role("owner")
    assert statuses(owner, 3) == [200] * 3
    refused = owner.get("projects")
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert refused["X-Request-Id"] and refused["Cache-Control"] == "no-store"


def test_a_limit_is_one_callers_whatever_they_call(
    as_role: AsRole, with_scopes: WithScopes, globex: House
) -> None:
    owner, key = as_role("owner"), with_scopes("admin")
    stranger = ApiClient(globex.tenant.id, user=globex.people["owner"])
    assert [owner.get("/api/v1/me").status_code, *statuses(owner, 3)] == [200, 200, 200, 429]
    assert as_role("owner").get("keys").status_code == 429
    for other in (as_role("admin"), key, with_scopes("admin"), stranger):
        assert statuses(other, 4) == [200, 200, 200, 429]


def test_what_is_refused_counts_too(as_role: AsRole, globex: House) -> None:
    viewer = as_role("viewer")
    assert statuses(viewer, 2, "members") == [403, 403]
    assert viewer.get(f"/api/v1/tenants/{globex.tenant.id}").status_code == 404
    assert statuses(viewer, 1, "members") == [429]
    assert viewer.post("projects", {"name": "x"}).status_code == 429


def test_nobody_is_not_limited_but_refused(acme: House) -> None:
    assert statuses(ApiClient(acme.tenant.id), 5) == [401] * 5


def test_a_limit_of_the_api_keeps_nobody_from_signing_out(as_role: AsRole) -> None:
    owner = as_role("owner")
    statuses(owner, 4)
    assert owner.delete("/api/v1/session").status_code == 204


def test_without_the_redis_that_counts_everybody_is_served(
    as_role: AsRole, with_scopes: WithScopes, settings: Settings
) -> None:
    owner, key = as_role("owner"), with_scopes("admin")
    # Nobody listens there.
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1"}}
    assert statuses(owner, 5) == [200] * 5
    assert statuses(key, 5) == [200] * 5
    assert ApiClient(owner.tenant.split("/")[-1], key="pk-wrong").get("projects").status_code == 401


def test_all_callers_of_a_tenant_share_a_limit_that_no_stranger_uses_up(
    as_role: AsRole, with_scopes: WithScopes, globex: House
) -> None:
    owner = as_role("owner")
    tenant_id = owner.tenant.split("/")[-1]
    strangers = [ApiClient(tenant_id, user=globex.people["owner"]) for _ in range(2)]
    assert {each.get("projects").status_code for each in strangers} == {404}
    for _ in range(10):
        assert statuses(with_scopes("admin"), 3) == [200] * 3
    refused = owner.get("projects")
    assert refused.status_code == 429
    assert 1 <= int(refused["Retry-After"]) <= 60
    other = ApiClient(globex.tenant.id, user=globex.people["admin"])
    assert other.get("projects").status_code == 200
