"""The answer of GET /v1/limits."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpu_workers.protocol.policy import Caller, LimitName, ModelPolicy
from inference.admission.limits import IN_NANOS, LimitStatus
from inference.dispatch.queue import QueueForecast

_UNITS: Final = {
    LimitName.REQUESTS_PER_MINUTE: "requests",
    LimitName.CONCURRENT_REQUESTS: "sequences",
    **dict.fromkeys(IN_NANOS, "nano-dollars"),
}


def limits_json(
    caller: Caller,
    models: Iterable[ModelPolicy],
    statuses: Iterable[LimitStatus],
    forecasts: Mapping[str, QueueForecast],
) -> dict[str, Any]:
    """Return everything that bounds the caller, and what it would wait for. Times are Unix seconds,
    as OpenAI has them; a wait is null where nobody can tell."""
    key, tenant = caller.key, caller.tenant
    names = [model.name for model in models]
    return {
        "object": "limits",
        "tier": tenant.tier.name,
        "tenant": {"id": tenant.tenant_id, "name": tenant.name},
        "project": {
            "id": key.project_id,
            "name": key.project_name,
            "on_saturation": key.on_saturation.value,
            "smaller_model": key.smaller_model if key.smaller_model in names else None,
        },
        "api_key": {
            "id": key.key_id,
            "scopes": [scope.value for scope in key.scopes],
            "expires_at": None if key.expires_at_ms is None else key.expires_at_ms // 1000,
        },
        "models": names,
        "queues": [_queue_json(name, forecast) for name, forecast in forecasts.items()],
        "ttft_target_ms": tenant.tier.ttft_target_ms,
        "max_output_tokens": tenant.tier.max_output_tokens,
        "max_context_tokens": tenant.tier.max_context_tokens,
        "data": [_limit_json(status) for status in statuses],
    }


def _queue_json(model: str, forecast: QueueForecast) -> dict[str, Any]:
    """Return what one more request would find; position 0 need not wait. `waiting` are the tenant's
    own: how many others there are is not its business."""
    return {
        "object": "queue",
        "model": model,
        "position": forecast.position,
        "expected_wait_ms": forecast.wait_ms,
        "waiting": forecast.waiting,
    }


def _limit_json(status: LimitStatus) -> dict[str, Any]:
    limit, resets_at_ms = status.limit, status.resets_at_ms
    return {
        "object": "limit",
        "scope": limit.scope.value,
        "limit": limit.name.value,
        "unit": _UNITS.get(limit.name, "tokens"),
        "limit_value": limit.value,
        "used": status.used,
        "remaining": status.remaining,
        "resets_at": None if resets_at_ms is None else -(-resets_at_ms // 1000),
        "is_hard": limit.is_hard,
    }
