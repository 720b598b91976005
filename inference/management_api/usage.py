"""GET usage: what a tenant used, by day and project."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Final

from msgspec import field
from rest_framework.response import Response

from inference.errors import InvalidRequest
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from inference.models import UsageRecord
from tenants.pages import BY_DAY_AND_PROJECT, Order, page
from tenants.permissions import Permission

_ORDER: Final = Order(name="usage", fields=BY_DAY_AND_PROJECT, is_descending=True)
_DEFAULT_DAYS: Final = 30
_MAX_DAYS: Final = 366


class UsageQuery(ListQuery):
    """Days in UTC, both included; by default the last 30."""

    from_: date | None = field(name="from", default=None)
    to: date | None = None


class UsageView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    parameters: ClassVar = {"GET": UsageQuery}

    def get(self) -> Response:
        first, last = _days(self.query, datetime.now(UTC).date())
        rows = UsageRecord.objects.totals(first, last)
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered, **{"from": first, "to": last})


def _days(query: UsageQuery, today: date) -> tuple[date, date]:
    last = query.to or today
    first = query.from_ or max(date.min, last - min(timedelta(_DEFAULT_DAYS - 1), last - date.min))
    if first > last:
        raise InvalidRequest("'from' must not be after 'to'.", param="from")
    if (last - first).days >= _MAX_DAYS:
        raise InvalidRequest(f"Ask for at most {_MAX_DAYS} days at once.", param="from")
    return first, last


def _rendered(total: dict[str, Any]) -> dict[str, Any]:
    return {
        "object": "usage.total",
        "date": total["day"],
        "project_id": total["project_id"],
        "requests": total["requests"],
        "prompt_tokens": total["prompt_tokens"],
        "cached_tokens": total["cached_tokens"],
        "completion_tokens": total["completion_tokens"],
    }
