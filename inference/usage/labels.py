"""Usage by whom it was for: added with the records, reported, exported, erased.

Values come from tenants' clients, and could be as many as requests. So a day knows a thousand of a
tenant for each name, those that came first; the usage of all others is that of "other". A record
has its own all the same.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

from django.db import connection, models
from django.db.models import Sum

from inference.models import LabelUsage, UsageRecord, WastedAttempt
from inference.models.label_usage import LABEL_OWNERS
from inference.models.rollup import COUNTERS
from inference.usage.recordset import as_json, recordset
from inference.usage.rollups import Use
from tenants.models import Tenant

MAX_VALUES: Final = 1000
OTHER: Final = "other"

_DAY_MS: Final = 86_400_000
_SUMMED: Final = COUNTERS[6:]

# Tenant, day and name.
_Place = tuple[str, date, str]
# A use, and the labels of its request.
Labelled = tuple[Use, dict[str, str]]


def add_to_label_usage(labelled: Iterable[Labelled]) -> None:
    """Add to the rows, in the transaction of what is added. For operators."""
    uses: defaultdict[_Place, list[tuple[str, Use]]] = defaultdict(list)
    for use, labels in labelled:
        day = datetime.fromtimestamp(use.arrived_ms // _DAY_MS * 86_400, UTC).date()
        for name, value in labels.items():
            uses[use.tenant_id, day, name].append((value, use))
    if not uses:
        return
    known = _known_values({place: {value for value, _ in each} for place, each in uses.items()})
    sums: dict[tuple[str, date, str, str, str], dict[str, int]] = {}
    for place, each in uses.items():
        for value, use in each:
            key = (*place, value if value in known[place] else OTHER, use.project_id)
            _add(sums.setdefault(key, dict.fromkeys(COUNTERS, 0)), use)
    rows = [dict(zip(LABEL_OWNERS, key, strict=True)) | sums[key] for key in sorted(sums)]
    with connection.cursor() as cursor:
        cursor.execute(_upsert(), [as_json(rows)])


def _add(counters: dict[str, int], use: Use) -> None:
    if use.outcome:
        counters["requests"] += 1
        counters[use.outcome] += 1
    for name in _SUMMED:
        counters[name] += getattr(use, name)


def _known_values(given: dict[_Place, set[str]]) -> dict[_Place, set[str]]:
    """Return which of the values have a row of their own, those that get one now included."""
    known = _on_record(given)
    new = {place: values - known[place] for place, values in given.items()}
    new = {place: values for place, values in new.items() if values}
    if not new:
        return known
    # One after the other from here on: of two who add a tenant's thousandth value one comes first.
    with connection.cursor() as cursor:
        tenants = sorted({tenant_id for tenant_id, _, _ in new})
        cursor.execute(_LOCK, [tenants])
    for place, values in _on_record(new).items():
        known[place] |= values
    for place, count in _counts(new).items():
        room = max(0, MAX_VALUES - count)
        known[place] |= set(sorted(new[place] - known[place] - {OTHER})[:room])
    return known


_LOCK: Final = """
SELECT pg_advisory_xact_lock(hashtext('penstock_label_values'), hashtext(tenant))
FROM unnest(%s::text[]) AS tenant
"""


def _on_record(given: dict[_Place, set[str]]) -> dict[_Place, set[str]]:
    found: dict[_Place, set[str]] = {place: set() for place in given}
    triples = [(*place, value) for place, values in given.items() for value in values]
    for tenant_id, day, name, value in _rows(_KNOWN, triples):
        found[tenant_id, day, name].add(value)
    return found


_KNOWN: Final = """
SELECT DISTINCT given.tenant_id::text, given.day, given.name, given.value
FROM unnest(%s::uuid[], %s::date[], %s::text[], %s::text[]) AS given(tenant_id, day, name, value)
JOIN inference_labelusage AS kept ON kept.tenant_id = given.tenant_id AND kept.day = given.day
    AND kept.name = given.name AND kept.value = given.value
"""


def _counts(places: Iterable[_Place]) -> dict[_Place, int]:
    """Return how many values each has rows of."""
    found: dict[_Place, int] = dict.fromkeys(places, 0)
    for tenant_id, day, name, count in _rows(_COUNTED, list(found)):
        found[tenant_id, day, name] = count
    return found


_COUNTED: Final = f"""
SELECT given.tenant_id::text, given.day, given.name, count(DISTINCT kept.value)
FROM unnest(%s::uuid[], %s::date[], %s::text[]) AS given(tenant_id, day, name)
JOIN inference_labelusage AS kept ON kept.tenant_id = given.tenant_id AND kept.day = given.day
    AND kept.name = given.name AND kept.value <> '{OTHER}'
GROUP BY 1, 2, 3
"""  # noqa: S608 - a word of ours


def _rows(statement: str, given: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(column) for column in zip(*given, strict=True)])
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _upsert() -> str:
    key, columns = ", ".join(LABEL_OWNERS), ", ".join((*LABEL_OWNERS, *COUNTERS))
    added = ", ".join(f"{name} = kept.{name} + excluded.{name}" for name in COUNTERS)
    given = recordset(LabelUsage, (*LABEL_OWNERS, *COUNTERS))
    return (
        f"INSERT INTO inference_labelusage AS kept ({columns}) SELECT {columns} FROM {given}"  # noqa: S608 - names of ours alone
        f" ON CONFLICT ({key}) DO UPDATE SET {added}"
    )


def label_names(first: date, last: date) -> list[str]:
    """Return the names that usage of these days (UTC) was recorded by, in order. Within a tenant's
    scope."""
    rows = LabelUsage.objects.filter(day__gte=first, day__lte=last).order_by("name")
    return list(rows.values_list("name", flat=True).distinct())


def usage_by_label(
    name: str,
    *,
    first: date,
    last: date,
    group_by: Sequence[str] = ("value",),
    project_id: uuid.UUID | None = None,
) -> "models.QuerySet[Any, Any]":
    """Return a row of sums for each group, of `value`, `day` and `project_id`, over the days (UTC)
    from first to last, both included. Within a tenant's scope."""
    rows = LabelUsage.objects.filter(name=name, day__gte=first, day__lte=last)
    if project_id is not None:
        rows = rows.filter(project_id=project_id)
    sums: models.QuerySet[Any, Any] = (
        rows.order_by()
        .values(*group_by)
        .annotate(**{counter: Sum(counter) for counter in COUNTERS})
    )
    return sums


def exported_label_usage(tenant_id: uuid.UUID) -> Iterator[LabelUsage]:
    rows = LabelUsage.objects.filter(tenant_id=tenant_id).order_by("day", "name", "value")
    return rows.iterator(chunk_size=2000)


def erase_labels(tenant: Tenant) -> None:
    """Forget whom a tenant's requests were for; what they used stays. For operators."""
    LabelUsage.objects.filter(tenant=tenant).delete()
    for kind in (UsageRecord, WastedAttempt):
        kind.objects.filter(tenant=tenant, labels__isnull=False).update(labels=None)
