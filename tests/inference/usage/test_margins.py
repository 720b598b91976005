"""What pools earn beside what their GPUs cost."""

import io
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord, Worker
from tenants.access.api_keys import issue_api_key
from tenants.billing.models import PoolCost, PoolHour
from tenants.billing.pricing import price_book
from tenants.billing.pricing.gpu_costs import gpu_costs
from tests.support.fleet import worker_info
from tests.support.projects import make_project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
HOUR = timedelta(hours=1)


def told() -> Any:
    """What the command says of today."""
    out, today = io.StringIO(), timezone.now().astimezone(UTC).date().isoformat()
    call_command("show_margins", "--from", today, "--to", today, "--json", stdout=out)
    return json.loads(out.getvalue())


def this_hour() -> datetime:
    return timezone.now().replace(minute=0, second=0, microsecond=0)


def test_the_life_of_workers_is_added_up_by_pool_and_hour() -> None:
    ten = datetime(2026, 11, 21, 10, tzinfo=UTC)
    begun = int(ten.timestamp() * 1000)
    one, two = (worker_info(worker_id=name, pool="p", started_at_ms=begun) for name in "ab")
    Worker.objects.sync([one, two], ten + timedelta(seconds=4))
    Worker.objects.sync([one, two], ten + timedelta(seconds=9))
    Worker.objects.sync([one], ten + HOUR)
    hours = list(PoolHour.objects.order_by("hour").values_list("pool", "hour", "worker_ms"))
    # Nobody looked for most of the hour: of a gap no more counts than a lease and a copy.
    assert hours == [("p", ten, 18_000), ("p", ten + HOUR, 16_000)]


def test_margin_and_cost_per_1000_tokens() -> None:
    price_book.enter(PoolCost(pool="paid", micros_per_gpu_hour=2_500_000, gpus_per_worker=2))
    for pool in ("paid", "unpriced"):
        PoolHour.objects.create(pool=pool, hour=this_hour(), worker_ms=1_800_000)
    spent = gpu_costs(this_hour(), this_hour() + HOUR)
    assert spent == {"paid": (3_600_000, 2_500_000_000)}
    project, now = make_project("Acme", "premium"), timezone.now()
    UsageRecord.objects.create(
        request_id=uuid.UUID(new_request_id()), tenant=project.tenant, project=project,
        api_key=issue_api_key(project).record, tier="premium", pool="paid", model="m",
        api="completions", stream=True, attempt=1, outcome="completed", prompt_tokens=900,
        cached_tokens=0, completion_tokens=100, arrived_at=now, finished_at=now,
        cost_nanos=3_000_000_000,
    )  # fmt: skip
    assert told() == [
        {
            "pool": "paid",
            "tokens": 1000,
            "gpu_hours": "1.00",
            "revenue": "$3.00",
            "cost": "$2.50",
            "margin": "$0.50",
            "cost_per_1k_tokens": "$2.50",
        }
    ]


def test_a_pool_that_nobody_used_costs_all_the_same() -> None:
    price_book.enter(PoolCost(pool="p", micros_per_gpu_hour=1_000_000))
    PoolHour.objects.create(pool="p", hour=this_hour(), worker_ms=3_600_000)
    [row] = told()
    assert (row["cost"], row["margin"], row["cost_per_1k_tokens"]) == ("$1.00", "-$1.00", None)
