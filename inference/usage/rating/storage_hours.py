"""What tenants keep, looked at each hour, and put on record with what it costs."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Final

from django.db import connection
from django.db.models import Sum
from django.db.models.functions import TruncMonth

from inference.models.adapter import HELD_STATES, AdapterVersion
from inference.models.adapter_storage import AdapterStorage
from tenants.billing.invoicing.usage_source import StorageLine
from tenants.billing.pricing.storage import hour_nanos, storage_price
from tenants.isolation.scoping import operator_scope

_ADD: Final = """
INSERT INTO inference_adapterstorage AS known
    (tenant_id, day, hours, last_hour, byte_hours, cost_nanos)
SELECT tenant_id, %(day)s, 1, %(hour)s, bytes, nanos
FROM unnest(%(tenants)s::uuid[], %(bytes)s::bigint[], %(nanos)s::bigint[])
    AS given(tenant_id, bytes, nanos)
ON CONFLICT (tenant_id, day) DO UPDATE SET
    hours = known.hours + 1, last_hour = excluded.last_hour,
    byte_hours = known.byte_hours + excluded.byte_hours,
    cost_nanos = known.cost_nanos + excluded.cost_nanos
WHERE known.last_hour < excluded.last_hour
"""


def note_storage(now: datetime | None = None) -> int:
    """Add what each tenant keeps now to its day, once an hour; return for how many tenants. In no
    scope; bears repetition."""
    now = now or datetime.now(UTC)
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    with operator_scope("stored adapters"):
        price = storage_price(now)
        micros = price.micros_per_gib_month if price else 0
        kept = list(
            AdapterVersion.objects.filter(state__in=HELD_STATES, tenant__closed_at=None)
            .order_by()
            .values_list("tenant")
            .annotate(bytes=Sum("stored_bytes"))
            .filter(bytes__gt=0)
        )
        with connection.cursor() as cursor:
            cursor.execute(
                _ADD,
                {
                    "day": hour.date(),
                    "hour": hour,
                    "tenants": [tenant_id for tenant_id, _ in kept],
                    "bytes": [int(stored) for _, stored in kept],
                    "nanos": [hour_nanos(int(stored), micros, hour) for _, stored in kept],
                },
            )
            noted: int = cursor.rowcount
    return noted


def storage_lines(
    tenant_ids: Sequence[uuid.UUID], first: date, last: date
) -> Iterator[StorageLine]:
    """Return what tenants kept in the months from the day `first` to the day `last`, where it cost
    anything. Runs in an `operator_scope`."""
    rows = (
        AdapterStorage.objects.filter(tenant__in=tenant_ids, day__gte=first, day__lte=last)
        .order_by()
        .annotate(month=TruncMonth("day"))
        .values_list("tenant_id", "month")
        .annotate(kept=Sum("byte_hours"), cost=Sum("cost_nanos"))
        .filter(cost__gt=0)
    )
    for tenant_id, month, byte_hours, nanos in rows:
        yield StorageLine(
            tenant_id=tenant_id, period=month, byte_hours=int(byte_hours), cost_nanos=int(nanos)
        )
