"""Seeded usage is like served usage: fsck finds nothing, and reports have it."""

import io
import json

import pytest
from django.core.management import CommandError, call_command
from django.db import models

from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from inference.charges import actual
from inference.models import (
    DailyPoolUsage,
    DailyTenantUsage,
    DailyUsage,
    ErrorRollup,
    PoolTenantUsage,
    PoolUsage,
    UsageRecord,
    UsageRollup,
)
from inference.operations.checks import attempt_problems
from inference.operations.sum_checks import pool_sum_problems, sum_problems
from inference.usage.rollups import Use, add_to_rollups
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant

pytestmark = pytest.mark.django_db


def seed(**options: int) -> dict[str, object]:
    out = io.StringIO()
    arguments = [f"--{name}={value}" for name, value in options.items()]
    call_command("seed_usage", *arguments, "--into-this-database", "--json", stdout=out)
    report: dict[str, object] = json.loads(out.getvalue())
    return report


def test_seeded_usage_adds_up_also_in_two_goes() -> None:
    assert seed(rows=600, tenants=3, days=7)["records_added"] == 600
    assert seed(rows=400, tenants=2, days=3)["records_added"] == 400
    with operator_scope("test"):
        assert Tenant.objects.filter(name__startswith="Load").count() == 3
        assert UsageRecord.objects.count() == 1000
        assert sum(DailyUsage.objects.values_list("requests", flat=True)) == 1000
        assert list(sum_problems()) == list(attempt_problems()) == []
        assert list(pool_sum_problems()) == []


def test_seeded_costs_and_sums_are_those_that_served_usage_would_have() -> None:
    seed(rows=300, tenants=2, days=2)
    with operator_scope("test"):
        records = list(UsageRecord.objects.all())
        for record in records:
            usage = TokenUsage(
                prompt_tokens=record.prompt_tokens,
                cached_tokens=record.cached_tokens,
                completion_tokens=record.completion_tokens,
            )
            prices = Prices(
                record.price_prompt,
                record.price_cached,
                record.price_completion,
                record.price_permille,
            )
            assert actual(Outcome(record.outcome), usage, prices).nanos == record.cost_nanos
        sums = list(map(sums_of, SUMS))
        assert all(sums)
        for model in SUMS:
            model._default_manager.all().delete()
        add_to_rollups(map(use_of, records))
        assert list(map(sums_of, SUMS)) == sums


SUMS = (
    UsageRollup,
    DailyUsage,
    DailyTenantUsage,
    ErrorRollup,
    PoolUsage,
    DailyPoolUsage,
    PoolTenantUsage,
)


def sums_of(model: type[models.Model]) -> list[dict[str, object]]:
    names = [field.attname for field in model._meta.concrete_fields]
    rows = [{name: getattr(row, name) for name in names} for row in model._default_manager.all()]
    return sorted(rows, key=str)


def use_of(record: UsageRecord) -> Use:
    took = record.finished_at - record.arrived_at
    return Use(
        tenant_id=str(record.tenant_id),
        project_id=str(record.project_id),
        api_key_id=str(record.api_key_id),
        model=record.model,
        adapter=record.adapter,
        tier=record.tier,
        pool=record.pool,
        service_class=record.service_class,
        error_code=record.error_code,
        arrived_ms=int(record.arrived_at.timestamp() * 1000),
        outcome=record.outcome,
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        completion_tokens=record.completion_tokens,
        cost_nanos=record.cost_nanos,
        ttft_ms=record.ttft_ms,
        itl_ms=record.itl_p50_ms,
        itl_p95_ms=record.itl_p95_ms,
        queue_ms=record.queue_ms,
        duration_ms=took.total_seconds() * 1000 if record.outcome == "completed" else None,
        waited_ms=took.total_seconds() * 1000,
        owed=record.owed,
    )


@pytest.mark.parametrize(
    "arguments",
    [[], ["--into-this-database", "--rows=0"], ["--into-this-database", "--days=400"]],
    ids=["not told where", "no rows", "too many days"],
)
def test_a_seed_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("seed_usage", *arguments)
    with operator_scope("test"):
        assert not UsageRecord.objects.exists()
