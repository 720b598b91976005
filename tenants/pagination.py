"""Long lists page by page, without offsets: a page starts behind the last row of the one before, so
that rows which come or go in between are neither shown twice nor left out."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, Generic, TypeVar

from django.core import signing
from django.db.models import Q, QuerySet

_Row = TypeVar("_Row")


class BadCursor(ValueError):
    """Not a cursor of ours, or one of another list."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Fields that together are unique among the rows, none of them null, and how each is read back
    from text. `name` tells the cursors of one list from those of another."""

    name: str
    fields: Mapping[str, Callable[[str], Any]]
    is_descending: bool = False


Fields = Mapping[str, Callable[[str], Any]]

NEWEST_FIRST: Final[Fields] = {"created_at": datetime.fromisoformat, "id": uuid.UUID}
NEWEST_SEQUENCE_FIRST: Final[Fields] = {"sequence": int}
BY_ID: Final[Fields] = {"id": uuid.UUID}


@dataclass(frozen=True, kw_only=True)
class Page(Generic[_Row]):
    """`next_cursor` None: it is the last."""

    rows: list[_Row]
    next_cursor: str | None


def page(
    rows: "QuerySet[Any, _Row]", order: Order, *, limit: int, cursor: str | None = None
) -> Page[_Row]:
    """Return at most `limit` rows behind the cursor. Raises `BadCursor`."""
    ordered = in_order(rows, order)
    if cursor is not None:
        ordered = ordered.filter(_behind(order, cursor))
    found = list(ordered[: limit + 1])
    has_more = len(found) > limit
    found = found[:limit]
    return Page(rows=found, next_cursor=cursor_of(order, found[-1]) if has_more else None)


def in_order(rows: "QuerySet[Any, _Row]", order: Order) -> "QuerySet[Any, _Row]":
    """Return the rows as pages have them, all of them."""
    sign = "-" if order.is_descending else ""
    return rows.order_by(*(f"{sign}{field}" for field in order.fields))


def cursor_of(order: Order, row: Any) -> str:
    """Return the cursor behind a row, which is a record or a dictionary."""
    values = row if isinstance(row, dict) else vars(row)
    texts = [
        value.isoformat() if isinstance(value, date) else str(value)
        for value in (values[field] for field in order.fields)
    ]
    return signing.dumps(texts, salt=f"cursor of {order.name}")


def read_cursor(order: Order, cursor: str) -> dict[str, Any]:
    """Return the values of the row that the cursor stands behind. Raises `BadCursor`."""
    try:
        texts = signing.loads(cursor, salt=f"cursor of {order.name}")
    except (signing.BadSignature, UnicodeError):
        raise BadCursor("This cursor does not belong to this list; start without one.") from None
    fields = zip(order.fields.items(), texts, strict=True)
    return {field: read(text) for (field, read), text in fields}


def _behind(order: Order, cursor: str) -> Q:
    step = "lt" if order.is_descending else "gt"
    behind, same = Q(), Q()
    for field, value in read_cursor(order, cursor).items():
        further = same & Q(**{f"{field}__{step}": value})
        behind = behind | further if behind else further
        same &= Q(**{field: value})
    return behind
