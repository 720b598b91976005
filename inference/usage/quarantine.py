"""Usage entries that could be no rows: ingested once their cause is mended, or thrown away."""

from collections.abc import Sequence

from django.db import transaction

from inference.models import UsageQuarantine
from inference.usage.ingest import ingest
from inference.usage.rows import StreamEntry

_CHUNK = 500


def retry(ids: Sequence[int]) -> tuple[int, int]:
    """Ingest these again, all of them if none is named: how many are on record now, and how many
    stay, each with the reason that it has today. Within an `operator_scope`."""
    wanted = UsageQuarantine.objects.order_by("id")
    if ids:
        wanted = wanted.filter(id__in=ids)
    numbers = list(wanted.values_list("id", flat=True))
    left = 0
    for start in range(0, len(numbers), _CHUNK):
        left += _retry(numbers[start : start + _CHUNK])
    return len(numbers) - left, left


@transaction.atomic
def _retry(numbers: list[int]) -> int:
    # By their own numbers: two may bear the same id of a stream.
    rows = {
        str(row.id): row
        for row in UsageQuarantine.objects.select_for_update().filter(id__in=numbers)
    }
    refused = ingest(
        StreamEntry(pool=row.pool, stream_id=number, data=bytes(row.entry))
        for number, row in rows.items()
    )
    staying = []
    for each in refused:
        row = rows.pop(each.entry.stream_id)
        row.reason, row.cause = each.shown_reason, each.cause
        staying.append(row)
    UsageQuarantine.objects.bulk_update(staying, ["reason", "cause"])
    UsageQuarantine.objects.filter(id__in=[row.id for row in rows.values()]).delete()
    return len(staying)
