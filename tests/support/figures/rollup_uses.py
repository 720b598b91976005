"""Requests as the rollups take them in."""

from typing import Any

from inference.usage.rollups import Use
from tenants.models import ApiKey


def use_of(key: ApiKey, **changes: Any) -> Use:
    """One request of a key."""
    fields: dict[str, Any] = {
        "tenant_id": str(key.tenant_id),
        "project_id": str(key.project_id),
        "api_key_id": str(key.id),
        "model": "m",
        "adapter": "",
        "tier": "free",
        "arrived_ms": 1_790_000_000_000,
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "cost_nanos": 1,
        "ttft_ms": 20,
        "duration_ms": 400,
    }
    return Use(**(fields | changes))
