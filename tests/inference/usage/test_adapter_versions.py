"""Versions of an adapter beside each other, from the records."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from inference.usage.adapter_versions import compare_versions
from tenants.isolation.scoping import operator_scope, tenant_scope
from tests.support.two_tenants import DAY, House, TwoTenants

pytestmark = pytest.mark.django_db


def a_record(house: House, version: int, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "outcome": "completed",
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "completion_tokens": 20,
        "cost_nanos": 7,
        "ttft_ms": 100,
        "itl_p50_ms": 4.0,
    }
    with operator_scope("test"):
        UsageRecord.objects.create(**fields_of(house, version), **(fields | changes))


def fields_of(house: House, version: int) -> dict[str, Any]:
    return {
        "request_id": new_request_id(int(DAY.timestamp() * 1000)),
        "tenant": house.tenant,
        "project": house.project,
        "api_key": house.key,
        "tier": "premium",
        "pool": "pool",
        "model": "base",
        "adapter": "acme/support",
        "adapter_version": version,
        "api": "completions",
        "stream": True,
        "attempt": 1,
        "arrived_at": DAY,
        "finished_at": DAY,
    }


def test_versions_stand_beside_each_other(houses: TwoTenants) -> None:
    acme = houses.acme
    with tenant_scope(acme.tenant.id):
        for ttft in (100, 200, 300):
            a_record(acme, 1, ttft_ms=ttft)
        a_record(acme, 2, outcome="failed", ttft_ms=None, itl_p50_ms=None, completion_tokens=0)
        a_record(acme, 2, ttft_ms=50)
        newest, first = compare_versions(
            acme.tenant.id, "acme/support", since=DAY, until=datetime.now(UTC)
        )
    assert (newest.version, newest.requests, newest.completed, newest.failed) == (2, 2, 1, 1)
    assert newest.ttft_ms == (50, 50, 50)
    assert (first.requests, first.prompt_tokens, first.completion_tokens) == (3, 30, 60)
    assert first.cost_nanos == 21
    assert first.ttft_ms[0] == 200
    assert first.inter_token_ms == (4, 4, 4)


def test_what_was_never_asked_for_has_no_row(houses: TwoTenants) -> None:
    acme, globex = houses.acme, houses.globex
    with tenant_scope(acme.tenant.id):
        a_record(acme, 1, ttft_ms=None, itl_p50_ms=None)
        (row,) = compare_versions(
            acme.tenant.id, "acme/support", since=DAY, until=DAY + timedelta(days=1)
        )
        assert row.ttft_ms == (None, None, None)
        assert not compare_versions(
            acme.tenant.id, "acme/support", since=DAY + timedelta(days=1), until=datetime.now(UTC)
        )
    with tenant_scope(globex.tenant.id):
        assert not compare_versions(
            acme.tenant.id, "acme/support", since=DAY, until=datetime.now(UTC)
        )
