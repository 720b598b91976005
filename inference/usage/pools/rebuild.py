"""Sums of pools and of errors, summed up again from the records, and tenants' sums by day from
those by hour: those of usage that was recorded before they were kept, and those that fsck finds
wrong.

An hour at a time, the newest first, each in a transaction of its own in which nobody records usage:
`are_complete` can so be told from the oldest hour alone.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.db import connection, models
from django.db.models import Min

from gpu_workers.protocol.request_id import lowest_request_id
from inference.models import PoolUsage, UsageRecord, UsageRollup
from inference.models.rollup import OWNERS, POOL_OWNERS
from inference.models.usage import ID_TOLERANCE
from inference.usage.record_sums import ERROR_CODE_SQL, IS_ERROR_SQL, PROMISED_SQL, measures_sql
from inference.usage.rollups import BY_HOUR, MEASURES, OF_POOL_TENANTS
from tenants.billing.invoicing.usage_source import usage_cutoff
from tenants.isolation.scoping import operator_scope

HOUR: Final = timedelta(hours=1)

_BETWEEN: Final = """
    arrived_at >= %(begin)s AND arrived_at < %(end)s
    AND request_id >= %(lowest)s::uuid AND request_id < %(highest)s::uuid
"""
# A wasted attempt belongs to the hour that its request's id was made in.
_USES: Final = f"""
    SELECT pool, model, tier, service_class, outcome, prompt_tokens,
        cached_tokens, completion_tokens, reasoning_tokens, wasted_tokens, cost_nanos, ttft_ms,
        itl_p50_ms, itl_p95_ms, queue_ms, arrived_at, finished_at, owed, error_code
    FROM inference_usagerecord WHERE {_BETWEEN}
    UNION ALL
    SELECT pool, model, tier, NULL, '', 0, 0, 0, 0, completion_tokens, 0, NULL, NULL,
        NULL, NULL, %(begin)s, %(begin)s, NULL, NULL
    FROM inference_wastedattempt
    WHERE request_id >= %(first)s::uuid AND request_id < %(last)s::uuid
"""  # noqa: S608 - names of ours alone
_POOL: Final = ", ".join(POOL_OWNERS)
_MEASURES: Final = ", ".join(MEASURES)
_STATEMENTS: Final = (
    "DELETE FROM inference_poolusage WHERE hour = %(begin)s",
    f"""
    INSERT INTO inference_poolusage (hour, {_POOL}, {_MEASURES})
    SELECT %(begin)s, pool, model, tier, coalesce(service_class, class_of_tier, '') AS class,
        {measures_sql()}
    FROM ({_USES}) AS uses {PROMISED_SQL} GROUP BY 2, 3, 4, 5
    """,  # noqa: S608 - names of ours alone
    "DELETE FROM inference_dailypoolusage WHERE day = %(day)s",
    f"""
    INSERT INTO inference_dailypoolusage (day, {_POOL}, {_MEASURES})
    SELECT %(day)s, {_POOL}, {", ".join(f"sum({name})" for name in MEASURES)}
    FROM inference_poolusage WHERE hour >= %(midnight)s AND hour < %(next_midnight)s
    GROUP BY {_POOL}
    """,  # noqa: S608 - names of ours alone
    "DELETE FROM inference_pooltenantusage WHERE hour = %(begin)s",
    f"""
    INSERT INTO inference_pooltenantusage (hour, pool, tenant_id, {", ".join(OF_POOL_TENANTS)})
    SELECT %(begin)s, pool, tenant_id, count(*), sum(prompt_tokens), sum(completion_tokens),
        sum(cost_nanos)
    FROM inference_usagerecord WHERE {_BETWEEN} GROUP BY pool, tenant_id
    """,  # noqa: S608 - names of ours alone
    # Where tenants alone change, its digest would not.
    "DELETE FROM inference_dealtday WHERE day = %(day)s",
    "DELETE FROM inference_errorrollup WHERE hour = %(begin)s",
    f"""
    INSERT INTO inference_errorrollup (hour, {", ".join(OWNERS)}, code, requests)
    SELECT %(begin)s, {", ".join(OWNERS)}, {ERROR_CODE_SQL} AS code, count(*)
    FROM inference_usagerecord WHERE {_BETWEEN} AND {IS_ERROR_SQL}
    GROUP BY {", ".join(OWNERS)}, code
    """,  # noqa: S608 - names of ours alone
)
_TENANT_DAYS: Final = (
    "DELETE FROM inference_dailytenantusage WHERE day = %(day)s",
    f"""
    INSERT INTO inference_dailytenantusage (tenant_id, day, tier, {_MEASURES}, {", ".join(BY_HOUR)})
    SELECT tenant_id, %(day)s, tier, {", ".join(f"sum({name})" for name in MEASURES)},
        {", ".join(BY_HOUR.values())}
    FROM inference_usagerollup
    WHERE hour >= %(day)s::timestamp AT TIME ZONE 'UTC'
        AND hour < (%(day)s::timestamp + interval '1 day') AT TIME ZONE 'UTC'
    GROUP BY tenant_id, tier
    """,  # noqa: S608 - names of ours alone
)


def are_complete(since: datetime) -> bool:
    """Return whether the sums of pools have all usage from that moment on. For operators."""
    pools = _oldest(PoolUsage.objects.all())
    tenants = _oldest(UsageRollup.objects.all())
    return tenants is None or (pools is not None and pools <= max(tenants, _hour_of(since)))


def rebuild_sums() -> Iterator[datetime]:
    """Sum up every hour of which there are records or sums, the newest first; yield each once it
    is committed. Opens an `operator_scope` for each; raises what the database does. Safe to
    repeat."""
    with operator_scope("rebuild usage sums"):
        found = UsageRecord.objects.aggregate(oldest=Min("arrived_at"))["oldest"]
        oldest = [each for each in (found, _oldest(PoolUsage.objects.all())) if each is not None]
        newest = UsageRecord.objects.order_by("-arrived_at").values_list("arrived_at", flat=True)
        hours = [
            *newest[:1],
            *PoolUsage.objects.order_by("-hour").values_list("hour", flat=True)[:1],
        ]
    if not oldest:
        return
    hour, first = _hour_of(max(hours)), _hour_of(min(oldest))
    while hour >= first:
        with operator_scope("rebuild usage sums"):
            usage_cutoff()
            rebuild_hour(hour)
            if hour.hour == 0 or hour == first:
                _rebuild_tenant_days(hour.date())
        yield hour
        hour -= HOUR


def rebuild_hour(hour: datetime) -> None:
    """Sum up one hour, and its day from the hours, in the open transaction, for operators; nobody
    may record usage meanwhile (`usage_cutoff`)."""
    end = hour + HOUR
    midnight = hour.replace(hour=0)
    parameters: dict[str, Any] = {
        "begin": hour,
        "end": end,
        "lowest": _lowest(hour - ID_TOLERANCE),
        "highest": _lowest(end + ID_TOLERANCE),
        "first": _lowest(hour),
        "last": _lowest(end),
        "day": hour.date(),
        "midnight": midnight,
        "next_midnight": midnight + timedelta(days=1),
    }
    with connection.cursor() as cursor:
        for statement in _STATEMENTS:
            cursor.execute(statement, parameters)


def _rebuild_tenant_days(day: date) -> None:
    with connection.cursor() as cursor:
        for statement in _TENANT_DAYS:
            cursor.execute(statement, {"day": day})


def _oldest(rows: "models.QuerySet[Any, Any]") -> datetime | None:
    found: datetime | None = rows.aggregate(oldest=Min("hour"))["oldest"]
    return found


def _hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _lowest(moment: datetime) -> str:
    return str(lowest_request_id(max(0, int(moment.timestamp() * 1000))))
