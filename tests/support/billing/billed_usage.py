"""Requests of a project, as the collector takes them in."""

from datetime import UTC, date, datetime
from typing import Any

from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Prices, TokenUsage
from inference.models import UsageRecord
from inference.usage.ingest import record_entries
from inference.usage.rows import StreamEntry
from tenants.access.api_keys import issue_api_key
from tenants.models import ApiKey, Project
from tests.support.usage_entries import POOL, usage_entry

# A month that is over, and the one before it.
OCTOBER = date(2026, 10, 1)
SEPTEMBER = date(2026, 9, 1)
AFTER_OCTOBER = datetime(2026, 11, 1, 7, tzinfo=UTC)
NOON = datetime(2026, 10, 15, 12, tzinfo=UTC)
USED = TokenUsage(prompt_tokens=10, cached_tokens=4, completion_tokens=5)
# 18 nano-dollars a request, rounded down.
PRICES = Prices(1000, 500, 2001, 1000)
# A dollar a token, so that a few requests come to something.
DEAR = Prices(10**12, 5 * 10**11, 10**12, 1000)
CHEAP = Prices(333_333, 111_111, 777_777, 997)


def use(project: Project, at: datetime = NOON, *, times: int = 1, **changes: Any) -> int:
    """So many requests; returns what they cost, in nano-dollars."""
    key = ApiKey.objects.filter(project=project).first() or issue_api_key(project).record
    own = {"usage": USED, "prices": PRICES, "itl_p50_ms": 5.0, "itl_p95_ms": 9.0, **changes}
    at_ms = int(at.timestamp() * 1000)
    entries = [usage_entry(key, at_ms, **own) for _ in range(times)]
    record_entries(
        StreamEntry(pool=POOL, stream_id=f"{number}-1", data=encode(entry))
        for number, entry in enumerate(entries)
    )
    ids = [entry.request_id for entry in entries]
    costs = UsageRecord.objects.filter(request_id__in=ids).values_list("cost_nanos", flat=True)
    assert len(costs) == times, "not all of it was recorded"
    return sum(costs)
