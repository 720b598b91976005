"""Requests of a project, as the collector takes them in."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from unittest.mock import patch

from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Prices, TokenUsage
from inference.models import UsageRecord
from inference.usage.ingest import record_entries
from inference.usage.rollups import Use, add_to_rollups
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
FREE = Prices(0, 0, 0, 0)
HOUR = timedelta(hours=1)
# More than a tenth of any month, as the highest credit for slow answers takes.
SLOW_HOURS = 80


def use(project: Project, at: datetime = NOON, *, times: int = 1, **changes: Any) -> int:
    """So many requests at a moment; returns what they cost, in nano-dollars."""
    return use_at(project, times * [at], **changes)


def use_at(project: Project, moments: Iterable[datetime], **changes: Any) -> int:
    """A request at each moment; returns what they cost, in nano-dollars. The service owes each what
    its tier promises."""
    key = ApiKey.objects.filter(project=project).first() or issue_api_key(project).record
    own = {"usage": USED, "prices": PRICES, "itl_p50_ms": 5.0, "itl_p95_ms": 9.0, "owed": True}
    own |= changes
    entries = [usage_entry(key, int(at.timestamp() * 1000), **own) for at in moments]
    # Whatever the day of the tests, October was not too long ago.
    with patch("inference.usage.rows.MONTHS_BACK", 1200):
        record_entries(
            StreamEntry(pool=POOL, stream_id=f"{number}-1", data=encode(entry))
            for number, entry in enumerate(entries)
        )
    ids = [entry.request_id for entry in entries]
    costs = UsageRecord.objects.filter(request_id__in=ids).values_list("cost_nanos", flat=True)
    assert len(costs) == len(entries), "not all of it was recorded"
    return sum(costs)


def hours_of(month: date, hours: Iterable[int], times: int = 1) -> list[datetime]:
    """So many moments in each of these hours of a month, counted from its beginning."""
    begin = datetime(month.year, month.month, 1, tzinfo=UTC)
    return [begin + hour * HOUR for hour in hours for _ in range(times)]


def use_slowly(project: Project, month: date = OCTOBER) -> None:
    """Answers, for nothing, that came so slowly in so many hours that a month whose target is below
    600 ms earns the highest credit for it, a quarter."""
    use_at(project, hours_of(month, range(SLOW_HOURS), 2), prices=FREE, ttft_ms=600)


def sum_up_slowly(project: Project, month: date) -> None:
    """The same in the sums alone, for games in which records would take too long."""
    key = ApiKey.objects.filter(project=project).first() or issue_api_key(project).record
    add_to_rollups(
        Use(
            tenant_id=str(key.tenant_id),
            project_id=str(key.project_id),
            api_key_id=str(key.id),
            model="penstock-demo",
            adapter="",
            tier="premium",
            pool=POOL,
            arrived_ms=int(at.timestamp() * 1000),
            outcome="completed",
            ttft_ms=600,
            owed=True,
        )
        for at in hours_of(month, range(SLOW_HOURS), 2)
    )
