"""The range, the filters and the grouping that pages about usage have in common: each leads to the
others with what they know of it."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from control_plane.dashboard.navigation import Tab
from inference.usage.overview import Days

# What the explorer alone has fields for.
GROUPING: Final = ("measure", "by", "then_by", "granularity", "drawn", "cumulated", "compared")
_WORDS: Final = {
    "usage": "Usage",
    "labels": "Labels",
    "requests": "Requests",
    "refusals": "Refusals",
}
_OF_USAGE: Final = ("project_id", "api_key_id", "created_by_id", "model", "adapter", "tier")
_FILTERS: Final = {
    "usage": _OF_USAGE,
    "labels": ("project_id",),
    "requests": (*_OF_USAGE, "label"),
    "refusals": ("project_id", "api_key_id", "model"),
}


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """What a page shows: `filters` and the grouping by their names in the address, the same on all
    of these pages."""

    days: Days
    given: Mapping[str, str]

    def address(self, page: str, tenant_id: uuid.UUID, **more: str) -> str:
        """Return the address of a page that shows the same, `more` filters beside."""
        chosen = {**self.given, **more}
        asked = {name: chosen[name] for name in (*_FILTERS[page], *GROUPING) if chosen.get(name)}
        here = reverse(f"dashboard:{page}", args=[tenant_id])
        return f"{here}?{urlencode(self._range(page) | asked)}"

    def tabs(self, current: str, tenant_id: uuid.UUID) -> list[Tab]:
        return [
            Tab(address=self.address(page, tenant_id), word=word, is_current=page == current)
            for page, word in _WORDS.items()
        ]

    def _range(self, page: str) -> dict[str, str]:
        first, last = self.days
        if page != "requests":
            return {"from": first.isoformat(), "to": last.isoformat()}
        # The log ends before a moment; up to today it goes on.
        asked = {"since": first.isoformat()}
        if last < datetime.now(UTC).date():
            asked["before"] = (last + timedelta(days=1)).isoformat()
        return asked
