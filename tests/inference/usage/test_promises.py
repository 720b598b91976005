"""What workers and gateways count of their tiers' promises is what invoices find on record."""

from typing import Any

import pytest
from django.db.models import Sum
from msgspec import structs
from redis import Redis

from gpu_workers.metrics import WorkerMetrics
from gpu_workers.protocol.messages import Outcome, TokenUsage
from gpu_workers.protocol.usage import UsageEntry
from inference.lifecycle.signals import metrics
from inference.models import DailyTenantUsage
from inference.usage.collector import UsageCollector
from tenants.models import ApiKey, Tier
from tests.support.metrics import sample
from tests.support.usage_entries import ARRIVED_MS, append, usage_entry
from tests.support.workers.envelopes import make_envelope

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operators_session")]

TTFT_TARGET_MS, INTER_TOKEN_TARGET_MS = 500, 40


def counted(process: str, promise: str) -> tuple[float, float]:
    """Those that were within their target, and those that were measured."""
    labels = {
        "model": "penstock-demo", "tier": "premium", "class": "interactive", "promise": promise,
    }  # fmt: skip
    kept, measured = (
        sample(f"penstock_{process}_sla_{which}_requests_total", **labels)
        for which in ("kept", "measured")
    )
    return kept, measured


def owed(key: ApiKey, /, **changes: Any) -> UsageEntry:
    """A request that is owed its promises, of 30 tokens."""
    usage = TokenUsage(prompt_tokens=11, cached_tokens=4, completion_tokens=30)
    return usage_entry(key, ARRIVED_MS, **({"owed": True, "usage": usage} | changes))


def test_promises_are_counted_as_invoices_judge_them(redis: Redis, api_key: ApiKey) -> None:
    before = {
        (process, promise): counted(process, promise)
        for process in ("worker", "gateway")
        for promise in ("ttft", "inter_token")
    }
    envelope = structs.replace(
        make_envelope(model="penstock-demo"),
        tier="premium",
        ttft_target_ms=TTFT_TARGET_MS,
        inter_token_target_ms=INTER_TOKEN_TARGET_MS,
    )
    Tier.objects.filter(name="premium").update(
        ttft_target_ms=TTFT_TARGET_MS, inter_token_target_ms=INTER_TOKEN_TARGET_MS
    )
    worker = WorkerMetrics("penstock-demo")
    # On either side of each target, on it, and never measured; no matter how the request ended.
    # With few tokens, a long prompt, nothing owed; given up too soon to tell, and too late.
    long = TokenUsage(prompt_tokens=2_010, cached_tokens=4, completion_tokens=30)
    short = TokenUsage(prompt_tokens=10, cached_tokens=4, completion_tokens=20)
    soon = ARRIVED_MS + 400
    told = [
        owed(api_key, ttft_ms=500, itl_p95_ms=40.0),
        owed(api_key, ttft_ms=501, itl_p95_ms=40.001),
        owed(api_key, ttft_ms=499, outcome=Outcome.CANCELLED),
        owed(api_key, ttft_ms=10_000, itl_p95_ms=39.9, outcome=Outcome.FAILED),
        owed(api_key, ttft_ms=None, outcome=Outcome.FAILED),
        owed(api_key, ttft_ms=None, outcome=Outcome.FAILED, error_code="structure_too_costly"),
        owed(api_key, ttft_ms=None, outcome=Outcome.CANCELLED, finished_at_ms=soon),
        owed(api_key, ttft_ms=10_000, itl_p95_ms=41.0, usage=long),
        owed(api_key, ttft_ms=499, itl_p95_ms=41.0, usage=short),
        owed(api_key, ttft_ms=10_000, itl_p95_ms=41.0, owed=False),
    ]
    for entry in told:
        worker.ended(entry, envelope, None)
        append(redis, entry)
    for ttft_ms in (None, 400, 600):
        entry = owed(api_key, ttft_ms=ttft_ms, outcome=Outcome.FAILED)
        metrics.recorded(entry, envelope)
        append(redis, entry)
    # One that an operator runs again leaves no record.
    worker.ended(owed(api_key, is_billed=False), envelope, None)
    UsageCollector(redis).drain()
    columns = "ttft_owed_in_time", "ttft_owed", "itl_owed_in_time", "itl_owed"
    judged = DailyTenantUsage.objects.aggregate(*map(Sum, columns))
    assert judged == dict(zip((f"{each}__sum" for each in columns), (4, 9, 3, 5), strict=True))
    told_by = {"ttft": (0.0, 0.0), "inter_token": (0.0, 0.0)}
    for (process, promise), (kept, measured) in before.items():
        kept_now, measured_now = counted(process, promise)
        known = told_by[promise]
        told_by[promise] = (known[0] + kept_now - kept, known[1] + measured_now - measured)
    assert told_by == {"ttft": (4, 9), "inter_token": (3, 5)}
