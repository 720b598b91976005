"""Usage of March 2026 that is in the sums alone, for tests of what is read from them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from inference.usage.rollups import Use, add_to_rollups
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.support.two_tenants import House

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
RANGE = {"from": "2026-03-01", "to": "2026-03-31"}


def use(house: House, *, day: int = 0, key: ApiKey | None = None, **changes: Any) -> Use:
    fields: dict[str, Any] = {
        "tenant_id": str(house.tenant.id),
        "project_id": str((key or house.key).project_id),
        "api_key_id": str((key or house.key).id),
        "model": "small",
        "adapter": "",
        "tier": "premium",
        "arrived_ms": int((BEGIN + timedelta(days=day, hours=7)).timestamp() * 1000),
        "outcome": "completed",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost_nanos": 1_000,
    }
    return Use(**(fields | changes))


def add(*uses: Use) -> None:
    with operator_scope("test"):
        add_to_rollups(uses)
