"""Rows of sums as one file."""

import csv
import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from itertools import islice
from typing import Any, Final

from django.db.models import QuerySet
from rest_framework import serializers

from control_plane.records.naming import Naming
from inference.errors import InvalidRequest
from tenants.pagination import Order, in_order
from tenants.spreadsheet import spreadsheet_cell

_MAX_CSV_ROWS: Final = 100_000
_ROWS_AT_ONCE: Final = 1000
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "day": date.fromisoformat,
    "hour": datetime.fromisoformat,
}


def order_by(name: str, columns: Iterable[str], more: Iterable[str] = ()) -> Order:
    """Return the order of rows by what they are grouped by, from the last to the first."""
    fields = {column: _reader(column) for column in (*columns, *more)}
    return Order(name=name, fields=fields, is_descending=True)


def csv_table(
    rows: "QuerySet[Any, Any]",
    order: Order,
    serializer: type[serializers.Serializer[Any]],
    columns: Iterable[str],
    naming: Naming | None = None,
) -> bytes:
    """Return all rows as a file: their groups, then their figures, under a heading also where there
    are none. Raises `InvalidRequest` about `group_by` for too many."""
    row_of: Any = serializer()
    shown = columns if naming is None else naming.beside(columns)
    heading = ["date" if column == "day" else column for column in shown]
    heading += _measures(row_of)
    content = io.BytesIO()
    text = io.TextIOWrapper(content, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(heading)
    # Read and rendered a few at a time: of the rows themselves no more than these are in memory.
    found = in_order(rows, order)[: _MAX_CSV_ROWS + 1].iterator(chunk_size=_ROWS_AT_ONCE)
    written = 0
    while part := list(islice(found, _ROWS_AT_ONCE)):
        if naming is not None:
            naming.add_to(part)
        written += len(part)
        if written > _MAX_CSV_ROWS:
            raise InvalidRequest(
                f"This has more than {_MAX_CSV_ROWS} rows; ask for fewer days or groups.",
                param="group_by",
            )
        for row in part:
            flat = _flat(row_of.to_representation(row))
            writer.writerow(spreadsheet_cell(flat[column]) for column in heading)
    return content.getvalue()


def _reader(column: str) -> Callable[[str], Any]:
    return _READERS.get(column) or (uuid.UUID if column.endswith("_id") else str)


def _measures(row: Any) -> Iterator[str]:
    """Yield the columns of a row's figures; one with several has one for each."""
    for name, field in row.fields.items():
        if isinstance(field, serializers.Serializer):
            yield from (f"{name}_{part}" for part in field.fields)
        elif name not in row.sometimes and name != "object":
            yield name


def _flat(fields_of_row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields_of_row.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
