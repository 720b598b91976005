"""The answer of GET /v1/limits."""

from collections.abc import Iterable
from typing import Any, Final

from gpu_workers.protocol.policy import Caller, LimitName, ModelPolicy
from inference.limits import Standing

_UNITS: Final = {
    LimitName.REQUESTS_PER_MINUTE: "requests",
    LimitName.CONCURRENT_REQUESTS: "requests",
    LimitName.SPEND_PER_MONTH: "nano-dollars",
}


def limits_json(
    caller: Caller, models: Iterable[ModelPolicy], standings: Iterable[Standing]
) -> dict[str, Any]:
    """Everything that bounds the caller. Times are Unix seconds, as OpenAI has them."""
    key, tenant = caller.key, caller.tenant
    return {
        "object": "limits",
        "tier": tenant.tier.name,
        "tenant": {"id": tenant.tenant_id, "name": tenant.name},
        "project": {"id": key.project_id, "name": key.project_name},
        "api_key": {
            "id": key.key_id,
            "scopes": [scope.value for scope in key.scopes],
            "expires_at": None if key.expires_at_ms is None else key.expires_at_ms // 1000,
        },
        "models": [model.name for model in models],
        "max_output_tokens": tenant.tier.max_output_tokens,
        "max_context_tokens": tenant.tier.max_context_tokens,
        "data": [_limit_json(standing) for standing in standings],
    }


def _limit_json(standing: Standing) -> dict[str, Any]:
    limit, resets_at_ms = standing.limit, standing.resets_at_ms
    return {
        "object": "limit",
        "scope": limit.scope.value,
        "limit": limit.name.value,
        "unit": _UNITS.get(limit.name, "tokens"),
        "limit_value": limit.value,
        "used": standing.used,
        "remaining": standing.remaining,
        "resets_at": None if resets_at_ms is None else -(-resets_at_ms // 1000),
        "is_hard": limit.is_hard,
    }
