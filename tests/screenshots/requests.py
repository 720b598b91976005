"""Requests of the last hours: most well, some slow, one that a worker was lost with."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord, WastedAttempt
from inference.usage.partitions import make_partitions, month_of
from tenants.models import ApiKey

_SECOND = timedelta(seconds=1)
# Minutes ago, which key, model, adapter, outcome, error, tokens in and out, ms queued, to the first
# token and in all.
_REQUESTS: tuple[tuple[Any, ...], ...] = (
    (1, 0, "llama-3.1-8b", "", "completed", None, 1240, 412, 4, 96, 5_240),
    (3, 1, "llama-3.1-70b", "", "completed", None, 18_204, 1190, 310, 1_420, 41_300),
    (4, 0, "llama-3.1-8b", "acme/support", "completed", None, 806, 233, 6, 88, 2_910),
    (9, 2, "llama-3.1-8b", "", "cancelled", None, 5_301, 77, 12, 131, 1_004),
    (14, 1, "llama-3.1-70b", "", "failed", "worker_lost", 2_044, 12, 80, 480, 9_120),
    (21, 0, "llama-3.1-8b", "acme/support", "completed", None, 912, 1_004, 5, 91, 13_870),
    (26, 3, "llama-3.1-70b", "", "expired", "no_worker", 0, 0, None, None, 30_000),
    (38, 2, "llama-3.1-8b", "", "completed", None, 640, 128, 3, 74, 1_702),
    (55, 0, "llama-3.1-8b", "", "refused", "context_length_exceeded", 0, 0, 8, None, 12),
    (71, 2, "llama-3.1-8b", "", "completed", None, 9_800, 2_048, 9, 210, 27_400),
)


def have_requests(keys: list[ApiKey]) -> UsageRecord:
    """Put them on record; return one that took two attempts."""
    now = datetime.now(UTC)
    make_partitions({month_of(now), month_of(now - timedelta(days=1))})
    for minutes, which, model, adapter, outcome, error, *figures in _REQUESTS:
        prompt, output, queued, first, took = figures
        at = now - timedelta(minutes=minutes)
        _record(
            keys[which], at, model=model, adapter=adapter, outcome=outcome, error_code=error,
            finish_reason="stop" if outcome == "completed" else None, prompt_tokens=prompt,
            cached_tokens=prompt // 3, completion_tokens=output, queue_ms=queued, ttft_ms=first,
            finished_at=at + timedelta(milliseconds=took), attempt=0 if queued is None else 1,
            cost_nanos=prompt * 150 + output * 600 if outcome != "expired" else 0,
        )  # fmt: skip
    at = now - timedelta(minutes=6)
    again = _record(
        keys[0], at, attempt=2, worker_id="llama-70b-b#4f1c", model="llama-3.1-70b", adapter="",
        outcome="completed", error_code=None, finish_reason="stop", prompt_tokens=3_120,
        cached_tokens=1_024, completion_tokens=866, queue_ms=4_210, ttft_ms=4_690,
        finished_at=at + 19 * _SECOND, cost_nanos=2_846_400, itl_p50_ms=14.2, itl_p95_ms=31.8,
        labels={"user": "customer-4711", "metadata.feature": "summaries"},
    )  # fmt: skip
    WastedAttempt.objects.create(
        request_id=again.request_id, attempt=1, tenant_id=again.tenant_id, api_key=keys[0],
        project_id=again.project_id, tier="premium", pool="llama-3.1-70b", model="llama-3.1-70b",
        worker_id="llama-70b-a#91d0", completion_tokens=38, reason="worker_lost",
        ended_at=at + 4 * _SECOND,
    )  # fmt: skip
    return again


def _record(key: ApiKey, at: datetime, **fields: Any) -> UsageRecord:
    defaults = {"worker_id": "llama-70b-a#91d0" if fields["attempt"] else None}
    return UsageRecord.objects.create(
        request_id=uuid.UUID(new_request_id(int(at.timestamp() * 1000))),
        tenant_id=key.tenant_id, project_id=key.project_id, api_key=key, tier="premium",
        pool=fields["model"], api="chat.completions", stream=True, arrived_at=at,
        price_prompt=150_000, price_cached=75_000, price_completion=600_000,
        **(defaults | fields),
    )  # fmt: skip
