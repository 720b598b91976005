"""Statements of what fsck compares: their rows, and what they have in common."""

from collections.abc import Iterator
from typing import Any, Final

from django.db import connection

# The day (UTC) of a record, and of a wasted attempt: that which its request's id was made on.
ARRIVED_DAY: Final = "(arrived_at AT TIME ZONE 'UTC')::date"
MADE_DAY: Final = """
    (to_timestamp(('x' || left(replace(request_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
        AT TIME ZONE 'UTC')::date
"""

_CHUNK: Final = 2000


def rows_of(
    statement: str, parameters: list[Any] | dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows by column."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        names = [column.name for column in cursor.description]
        while found := cursor.fetchmany(_CHUNK):
            for row in found:
                yield dict(zip(names, row, strict=True))
