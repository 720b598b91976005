"""Lists as all calls answer them: a page of rows and the cursor of the next."""

from typing import Any

from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.serializers import MAX_ROWS
from tenants.pagination import page


class ListPagination(CursorPagination):
    """DRF's, with cursors of ours: theirs know one column and count from there on, where a report
    has thousands of rows with the same. A view says its `order`; its `query` holds limit and
    cursor."""

    cursor_query_param = "cursor"
    cursor_query_description = "The `next_cursor` of the page before."
    page_size_query_param = "limit"
    page_size_query_description = f"How many rows at most, up to {MAX_ROWS}."
    max_page_size = MAX_ROWS

    next_cursor: str | None = None

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        """Return the page's rows. Raises `BadCursor`."""
        found = page(
            queryset, view.get_order(), limit=view.query["limit"], cursor=view.query["cursor"]
        )
        self.next_cursor = found.next_cursor
        return found.rows

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"object": "list", "data": data, "next_cursor": self.next_cursor})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["object", "data", "next_cursor"],
            "properties": {
                "object": {"type": "string", "enum": ["list"]},
                "data": schema,
                "next_cursor": {"type": ["string", "null"]},
            },
        }


class OnePage(ListPagination):
    """Of a list that is short: all of it, in the shape of a page."""

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return []
