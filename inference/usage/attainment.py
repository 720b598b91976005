"""How promises were kept, of what the service owed: the one measure that invoices and overviews
have (docs/sla.md, docs/adr/0042).

Of each promise it is a share of the clock hours of a time, by tenant, tier and model. An hour
counts as missed by the share of its requests that missed the promise, and less if it had fewer
requests than the time's mean hour, in proportion, unless at least `ENOUGH_MISSED` missed it. So it
is never more than what requests sent evenly would have met with: when to send is the tenant's
choice, and no choice pays.
"""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import connection

from inference.models import UsageRollup
from tenants.billing.invoicing.usage_source import Attainment, Measured

# With fewer nothing is known: one that missed would be more than the hundredth that may.
LEAST_MEASURED: Final = 100
# So many in an hour are no accident, and an outage lets few in: those of a share, one deadline
# after the other.
ENOUGH_MISSED: Final = 30

_HOUR: Final = timedelta(hours=1)


def _missed_hours(measured: str, missed: str) -> str:
    """Return SQL for how many hours missed a promise; None where too few requests tell."""
    share = f"{missed}::float8 / {measured}"
    of_mean = f"{missed} * %(hours)s / all_{measured}"
    enough = f"least(1, {missed}::float8 / {ENOUGH_MISSED})"
    missed_of_hour = f"greatest(least({share}, {of_mean}), {share} * {enough})"
    return f"""
        CASE WHEN sum({measured}) >= {LEAST_MEASURED}
        THEN coalesce(sum({missed_of_hour}) FILTER (WHERE {missed} > 0), 0) END
    """


_PROMISES: Final = (
    ("ttft", "ttft_owed", "ttft_owed - ttft_owed_in_time"),
    ("itl", "itl_owed", "itl_owed - itl_owed_in_time"),
    ("requests", "requests_owed", "failed_owed"),
)
_BY_HOUR: Final = ", ".join(
    f"sum({measured})::float8 AS {name}, sum({missed})::float8 AS {name}_missed,"
    f" sum(sum({measured})) OVER whole AS all_{name}"
    for name, measured, missed in _PROMISES
)
_KEPT: Final = f"""
SELECT tenant_id, tier, model,
    {", ".join(_missed_hours(name, f"{name}_missed") for name, _, _ in _PROMISES)}
FROM (
    SELECT tenant_id, tier, model, hour, {_BY_HOUR}
    FROM {UsageRollup._meta.db_table}
    WHERE tenant_id = ANY (%(tenants)s) AND hour >= %(begin)s AND hour < %(end)s
        AND requests_owed > 0
    GROUP BY tenant_id, tier, model, hour
    WINDOW whole AS (PARTITION BY tenant_id, tier, model)
) AS hours
GROUP BY tenant_id, tier, model ORDER BY tenant_id, tier, model
"""  # noqa: S608 - names of ours


def attainment(
    tenant_ids: Sequence[uuid.UUID], begin: datetime, end: datetime
) -> Iterator[Attainment]:
    """Yield how promises were kept from one full hour to another time, in the open scope. Of
    requests of before they were judged nothing is known."""
    hours = (end - begin) / _HOUR
    if hours <= 0:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _KEPT, {"tenants": list(tenant_ids), "begin": begin, "end": end, "hours": hours}
        )
        rows = cursor.fetchall()
    for tenant_id, tier, model, ttft, inter_token, down in rows:
        yield Attainment(
            tenant_id=tenant_id,
            tier=tier,
            model=model,
            ttft=_measured(ttft, hours),
            inter_token=_measured(inter_token, hours),
            uptime=_measured(down, hours),
        )


def _measured(missed: float | None, hours: float) -> Measured:
    if missed is None:
        return Measured(kept=0, total=0)
    # An hour that runs may be shorter than the whole one that missed it.
    return Measured(kept=max(0.0, hours - missed), total=hours)
