"""What it costs to keep bytes, by the hour."""

from datetime import datetime
from typing import Final

from django.db.models import Q

from tenants.billing.models import StoragePrice
from tenants.billing.periods import end_of, month_of, start_of

GIB: Final = 2**30


def storage_price(at: datetime) -> StoragePrice | None:
    """Return the price that holds at a moment; None where there is none."""
    held = Q(effective_until=None) | Q(effective_until__gt=at)
    return StoragePrice.objects.filter(held, effective_from__lte=at).first()


def hours_of_month(moment: datetime) -> int:
    month = month_of(moment.date())
    return int((end_of(month) - start_of(month)).total_seconds()) // 3600


def hour_nanos(stored_bytes: int, micros_per_gib_month: int, hour: datetime) -> int:
    """Return what it costs to keep bytes for an hour (UTC), in nano-dollars, a part of one left
    out: for all hours of a month together what a month costs."""
    return stored_bytes * micros_per_gib_month * 1000 // (GIB * hours_of_month(hour))
