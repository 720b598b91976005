"""Lists as all calls answer them: a page of rows and the cursor of the next."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta
from rest_framework.response import Response

from inference.management_api.bodies import Fields
from tenants.pagination import Page

MAX_ROWS: Final = 200

_Row = TypeVar("_Row")


class ListQuery(Fields):
    """`cursor` is the `next_cursor` of the page before."""

    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 50
    cursor: Annotated[str, Meta(max_length=1000)] | None = None


def listed(page: Page[_Row], render: Callable[[_Row], dict[str, Any]], **more: Any) -> Response:
    return Response(
        {
            "object": "list",
            "data": [render(row) for row in page.rows],
            "next_cursor": page.next_cursor,
            **more,
        }
    )
