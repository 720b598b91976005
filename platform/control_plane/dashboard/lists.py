"""Lists of the pages: the cursor stands in the address, and an outdated one leads to the start."""

from collections.abc import Callable
from typing import Final, TypeVar

from django.http import HttpRequest

from tenants.pagination import BadCursor, Page

ROWS: Final = 25

_Row = TypeVar("_Row")


def page_of(request: HttpRequest, rows: Callable[[str | None], Page[_Row]]) -> Page[_Row]:
    """Return the page that the address asks for. `rows` takes a cursor and raises `BadCursor`."""
    cursor = request.GET.get("cursor") or None
    try:
        return rows(cursor)
    except BadCursor:
        return rows(None)
