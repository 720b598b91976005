"""Months of the usage table: made ahead, and where an entry of a month without one comes in."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Final

from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

# What is made of the time to come, besides the current month.
MONTHS_AHEAD: Final = 3
# What an outbox may have kept back: entries of an earlier month are for a person to look at.
MONTHS_BACK: Final = 12


def make_partitions_ahead(*, now: datetime | None = None, using: str = DEFAULT_DB_ALIAS) -> int:
    """Make the partitions of this month and the next three; return how many were missing. For
    operators."""
    this_month = month_of(now or timezone.now())
    return make_partitions(
        (months_later(this_month, ahead) for ahead in range(MONTHS_AHEAD + 1)), using=using
    )


def make_partitions(months: Iterable[date], *, using: str = DEFAULT_DB_ALIAS) -> int:
    """Make the partitions of these months; return how many were missing. For operators."""
    with connections[using].cursor() as cursor:
        made = 0
        for month in sorted(months):
            cursor.execute("SELECT penstock_make_usage_partition(%s)", [month])
            made += bool(cursor.fetchone()[0])
    return made


def months_present(*, using: str = DEFAULT_DB_ALIAS) -> set[date]:
    """Return the months that have a partition."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT to_date(right(relname, 7), 'YYYY\"m\"MM') FROM pg_class"
            " JOIN pg_inherits ON inhrelid = pg_class.oid"
            " WHERE inhparent = 'inference_usagerecord'::regclass"
        )
        return {month for (month,) in cursor.fetchall()}


def is_partitioned(*, using: str = DEFAULT_DB_ALIAS) -> bool:
    """Return whether the table is partitioned yet."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT to_regproc('penstock_make_usage_partition') IS NOT NULL")
        return bool(cursor.fetchone()[0])


def moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


def month_of(moment: datetime) -> date:
    """Return the first day of its month, in UTC."""
    return moment.astimezone(UTC).date().replace(day=1)


def months_later(month: date, count: int) -> date:
    """Return the first of the month so many months later, or earlier."""
    years, month_index = divmod(month.year * 12 + month.month - 1 + count, 12)
    return date(years, month_index + 1, 1)
