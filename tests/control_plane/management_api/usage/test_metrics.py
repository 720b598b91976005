"""A tenant's own figures in Prometheus' text: they are its reports' figures, and nobody else's."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from inference.histograms import bucket_of
from inference.operations.tenant_metrics import tenant_metrics
from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Tenant
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]
NOW = datetime(2026, 3, 17, 12, tzinfo=UTC)


def use(house: House, *, days_ago: int = 0, **changes: Any) -> Use:
    fields: dict[str, Any] = {
        "tenant_id": str(house.tenant.id),
        "project_id": str(house.key.project_id),
        "api_key_id": str(house.key.id),
        "model": "small",
        "adapter": "",
        "tier": "premium",
        "arrived_ms": int((NOW - timedelta(days=days_ago)).timestamp() * 1000),
        "outcome": "completed",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost_nanos": 1_234_567_890,
        "ttft_ms": 20.0,
    }
    return Use(**(fields | changes))


def scraped(tenant: Tenant) -> dict[str, list[Sample]]:
    with tenant_scope(tenant.pk):
        text = tenant_metrics(Tenant.objects.get(pk=tenant.pk), NOW).decode()
    return {
        family.name: [sample for sample in family.samples if not sample.name.endswith("_created")]
        for family in text_string_to_metric_families(text)
    }


def one(samples: list[Sample], **labels: str) -> float:
    (value,) = [each.value for each in samples if labels.items() <= each.labels.items()]
    return value


def test_figures_are_those_of_the_month_so_far(acme: House) -> None:
    with operator_scope("test"):
        add_to_rollups(
            [
                use(acme),
                use(acme, days_ago=16, outcome="failed", ttft_ms=None),
                use(acme, days_ago=17),  # February's
                use(acme, model="large", adapter="acme/poems"),
            ]
        )
    found = scraped(acme.tenant)
    requests = found["penstock_tenant_requests"]
    assert one(requests, model="small", outcome="completed") == 1
    assert one(requests, model="small", outcome="failed") == 1
    assert one(requests, model="large", adapter="acme/poems", outcome="completed") == 1
    assert one(found["penstock_tenant_tokens"], model="small", kind="completion") == 10
    assert one(found["penstock_tenant_cost_dollars"], model="small") == 2.46913578


def test_latencies_are_counted_exactly_at_every_bound(acme: House) -> None:
    latencies = [0.3, 1.0, 20.0, 21.0, 199.0, 2_000.0, 90_000.0, 10_000_000.0]
    with operator_scope("test"):
        add_to_rollups([use(acme, ttft_ms=latency) for latency in latencies])
    samples = scraped(acme.tenant)["penstock_tenant_time_to_first_token_seconds"]
    buckets = {
        sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("_bucket")
    }
    assert list(buckets)[-1] == "+Inf" and buckets.pop("+Inf") == len(latencies)
    assert len(buckets) > 15
    for bound, count in buckets.items():
        last = bucket_of(float(bound) * 1000 * 0.999)
        assert count == sum(bucket_of(latency) <= last for latency in latencies), bound
    total = one([sample for sample in samples if sample.name.endswith("_sum")])
    assert abs(total / (sum(latencies) / 1000) - 1) < 0.048


@pytest.mark.usefixtures("dispatch_redis")
def test_limits_and_what_is_used_of_them_are_there(acme: House) -> None:
    found = scraped(acme.tenant)
    limits, used = found["penstock_tenant_limit"], found["penstock_tenant_limit_used"]
    assert one(limits, scope="tier", limit="requests_per_minute") > 0
    assert {tuple(each.labels.items()) for each in limits} == {
        tuple(each.labels.items()) for each in used
    }


def test_a_key_that_may_read_usage_scrapes_its_tenant_and_no_other(
    acme: House, globex: House, client: Client
) -> None:
    cache.clear()
    with operator_scope("test"):
        key = issue_api_key(acme.key.project, scopes=["usage:read"]).key
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        add_to_rollups(
            [
                use(acme, model="acmes", arrived_ms=now_ms),
                use(globex, model="globexes", arrived_ms=now_ms),
            ]
        )
    path = f"/api/v1/tenants/{acme.tenant.id}/metrics"
    headers = {
        "Authorization": f"Bearer {key}",
        # As Prometheus asks.
        "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    }
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=")
    assert b'model="acmes"' in answer.content and b"globexes" not in answer.content
    other = client.get(f"/api/v1/tenants/{globex.tenant.id}/metrics", headers=headers)
    assert other.status_code == 404 and b"globexes" not in other.content


def test_scraping_again_at_once_asks_nothing_of_the_sums(acme: House, as_role: AsRole) -> None:
    cache.clear()
    viewer, now_ms = as_role("viewer"), int(datetime.now(UTC).timestamp() * 1000)
    first = viewer.get("metrics")
    with operator_scope("test"):
        add_to_rollups([use(acme, model="later", arrived_ms=now_ms)])
    assert viewer.get("metrics").content == first.content
    cache.clear()
    assert b"later" in viewer.get("metrics").content
