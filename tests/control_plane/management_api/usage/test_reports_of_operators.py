"""Reports over all tenants: whose they are, and that sums of pools say what those of tenants do."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from inference.models import PoolUsage
from tenants.isolation.scoping import operator_scope
from tenants.models import User
from tests.control_plane.management_api.usage.conftest import RANGE, add, use
from tests.support.two_tenants import COST_NANOS, House, TwoTenants


def test_operators_see_all_tenants_and_each(acme: House, globex: House) -> None:
    operator = User.objects.create_user("operator@penstock.example", "x" * 20, is_staff=True)
    http = Client()
    http.force_login(operator)
    year = {"from": "2026-01-01", "to": "2026-12-31"}
    assert http.get("/api/v1/costs", year).status_code == 400, "no operator may yet"
    operator.user_permissions.add(Permission.objects.get(codename="view_usagerecord"))
    answer = http.get("/api/v1/costs", {**year, "group_by": "tenant"}).json()
    assert {row["tenant_id"] for row in answer["data"]} == {
        str(acme.tenant.id),
        str(globex.tenant.id),
    }
    assert answer["total_cost_nanos"] == 2 * COST_NANOS
    one = http.get("/api/v1/costs", {**year, "tenant_id": str(acme.tenant.id)}).json()
    assert one["total_cost_nanos"] == COST_NANOS
    none = http.get("/api/v1/costs", {**year, "tenant_id": str(uuid.uuid4())}).json()
    assert none["data"] == []


@pytest.fixture
def operator(houses: TwoTenants) -> Client:
    user = User.objects.create_user("operator@penstock.example", "x" * 20, is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_usagerecord"))
    http = Client()
    http.force_login(user)
    return http


def test_operators_group_all_tenants_by_pool_and_class(
    operator: Client, acme: House, globex: House
) -> None:
    add(
        use(acme, pool="a", service_class="code", ttft_ms=10, queue_ms=3),
        use(globex, pool="a", service_class="batch", ttft_ms=30, cost_nanos=7),
        use(globex, pool="b", service_class="batch", outcome="failed", day=1, cost_nanos=0),
    )

    def asked(**query: str) -> dict[str, Any]:
        answer = operator.get("/api/v1/usage", {**RANGE, **query})
        assert answer.status_code == 200, answer.content
        return {
            " ".join(str(row[name]) for name in answer.json()["group_by"]): row["requests"]
            for row in answer.json()["data"]
        }

    assert asked(group_by="pool") == {"a": 2, "b": 1}
    assert asked(group_by="pool,service_class") == {"a code": 1, "a batch": 1, "b batch": 1}
    assert asked(group_by="model", pool="a", service_class="code") == {"small": 1}
    assert asked(granularity="hour", group_by="pool", pool="b") == {"b": 1}
    costs = operator.get("/api/v1/costs", {**RANGE, "group_by": "model", "pool": "a"}).json()
    assert costs["total_cost_nanos"] == 1_007
    for wrong in (
        {"group_by": "pool,tenant"},
        {"group_by": "pool", "tenant_id": str(acme.tenant.id)},
        {"group_by": "project", "service_class": "batch"},
    ):
        refused = operator.get("/api/v1/usage", {**RANGE, **wrong})
        assert refused.status_code == 400 and "over all tenants" in str(refused.json())
    assert operator.get("/api/v1/errors", {**RANGE, "pool": "a"}).status_code == 400


def test_over_all_tenants_it_is_the_same_from_sums_of_pools_and_of_tenants(
    operator: Client, acme: House, globex: House
) -> None:
    add(
        *(
            use(house, pool="a", day=number % 3, model=f"m{number % 2}", cost_nanos=number)
            for number in range(20)
            for house in (acme, globex)
        )
    )
    query = {**RANGE, "group_by": "day,model"}
    with CaptureQueriesContext(connection) as from_pools:
        quick = operator.get("/api/v1/costs", query).json()
    assert "inference_dailyusage" not in str(from_pools.captured_queries)
    with operator_scope("test"):
        PoolUsage.objects.all().delete()
    # As before usage was summed up by pool: as right, and slower.
    assert operator.get("/api/v1/costs", query).json() == quick
    assert quick["total_cost_nanos"] == 2 * sum(range(20))
    assert operator.get("/api/v1/costs", {**query, "pool": "a"}).status_code == 400
