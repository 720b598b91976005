"""What must hold of usage by label, for fsck: it is the sum of the records that bear the labels."""

from collections.abc import Iterator, Sequence
from typing import Final

from django.db import connection

from gpu_workers.protocol.messages import Outcome
from inference.models.rollup import COUNTERS
from inference.operations.slices import tenants_of
from inference.operations.statements import ARRIVED_DAY, MADE_DAY
from inference.usage.labels import OTHER

# What records and attempts have another way than as a column.
_OF_RECORDS: Final = {
    "requests": "1",
    **{outcome: f"(outcome = '{outcome}')::int" for outcome in map(str, Outcome)},
}
_OF_ATTEMPTS: Final = {"wasted_tokens": "completion_tokens"}
_STATEMENT: Final = """
WITH borne AS (
    SELECT tenant_id, {arrived_day} AS day, labels, project_id, {of_records}
    FROM inference_usagerecord
    WHERE labels IS NOT NULL AND tenant_id = ANY (%(tenants)s::uuid[])
    UNION ALL
    SELECT tenant_id, {made_day}, labels, project_id, {of_attempts}
    FROM inference_wastedattempt
    WHERE labels IS NOT NULL AND tenant_id = ANY (%(tenants)s::uuid[])
),
said AS (
    SELECT tenant_id, day, label.key AS name, CASE WHEN EXISTS (
        SELECT FROM inference_labelusage AS kept WHERE kept.tenant_id = borne.tenant_id
        AND kept.day = borne.day AND kept.name = label.key AND kept.value = label.value
    ) THEN label.value ELSE '{other}' END AS value, project_id, {negative}
    FROM borne CROSS JOIN jsonb_each_text(labels) AS label
    UNION ALL
    SELECT tenant_id, day, name, value, project_id, {counters} FROM inference_labelusage
    WHERE tenant_id = ANY (%(tenants)s::uuid[])
)
SELECT tenant_id, day, name, project_id, {sums} FROM said
GROUP BY tenant_id, day, name, value, project_id HAVING {differ}
ORDER BY tenant_id, day, name, project_id
"""


def label_problems(tenants: Sequence[str] | None = None) -> Iterator[str]:
    """Find, for these tenants or all, days and names whose sums by label differ from the records;
    no value is told."""
    statement = _STATEMENT.format(
        other=OTHER,
        arrived_day=ARRIVED_DAY,
        made_day=MADE_DAY,
        of_records=", ".join(f"{_OF_RECORDS.get(name, name)} AS {name}" for name in COUNTERS),
        of_attempts=", ".join(_OF_ATTEMPTS.get(name, "0") for name in COUNTERS),
        negative=", ".join(f"-{name} AS {name}" for name in COUNTERS),
        counters=", ".join(COUNTERS),
        sums=", ".join(f"sum({name})::bigint" for name in COUNTERS),
        differ=" OR ".join(f"sum({name}) <> 0" for name in COUNTERS),
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, tenants_of(tenants))
        for tenant_id, day, name, project_id, *sums in cursor.fetchall():
            by = ", ".join(
                f"{counter} by {more:+}"
                for counter, more in zip(COUNTERS, sums, strict=True)
                if more
            )
            yield (
                f"Tenant {tenant_id}, project {project_id}, {day}: usage by the label {name} "
                f"differs from the records: {by}."
            )
