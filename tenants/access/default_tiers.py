"""SLA tiers to start from: a preset for each class of service, and the four tiers of a new
installation. What a deployment promises is its operator's to decide and to change."""

from decimal import Decimal
from typing import Any, Final

from tenants.models import ServiceClass, Tier

PRESETS: Final[dict[ServiceClass, dict[str, Any]]] = {
    ServiceClass.INTERACTIVE: {
        "priority": 0,
        "weight": 8,
        "ttft_target_ms": 300,
        "inter_token_target_ms": 50,
        "uptime_percent": Decimal("99.9"),
        "max_queue_seconds": 30,
        "requests_per_minute": 6_000,
        "tokens_per_minute": 2_000_000,
        "max_concurrent_requests": 256,
        "max_context_tokens": 32_768,
        "default_max_output_tokens": 1024,
        "max_output_tokens": 8_192,
        "max_pinned_adapters": 4,
        "price_multiplier": Decimal("1.5"),
    },
    ServiceClass.CODE: {
        "priority": 5,
        "weight": 6,
        "ttft_target_ms": 500,
        "inter_token_target_ms": 50,
        "uptime_percent": Decimal("99.9"),
        "max_queue_seconds": 30,
        "requests_per_minute": 12_000,
        "tokens_per_minute": 4_000_000,
        "max_concurrent_requests": 256,
        "max_context_tokens": 65_536,
        "default_max_output_tokens": 512,
        "max_output_tokens": 8_192,
        "max_pinned_adapters": 2,
        "price_multiplier": Decimal("1.25"),
    },
    ServiceClass.DOCUMENTS: {
        "priority": 10,
        "weight": 4,
        "ttft_target_ms": 800,
        "inter_token_target_ms": 100,
        "uptime_percent": Decimal("99.5"),
        "max_queue_seconds": 60,
        "requests_per_minute": 3_000,
        "tokens_per_minute": 6_000_000,
        "max_concurrent_requests": 128,
        "max_context_tokens": 131_072,
        "default_max_output_tokens": 2048,
        "max_output_tokens": 16_384,
        "max_pinned_adapters": 1,
        "price_multiplier": Decimal(1),
    },
    ServiceClass.BATCH: {
        "priority": 30,
        "weight": 1,
        "ttft_target_ms": 5_000,
        "inter_token_target_ms": 500,
        "uptime_percent": Decimal("99.0"),
        "max_queue_seconds": 600,
        "requests_per_minute": 6_000,
        "tokens_per_minute": 10_000_000,
        "max_concurrent_requests": 512,
        "max_context_tokens": 131_072,
        "default_max_output_tokens": 1024,
        "max_output_tokens": 32_768,
        "price_multiplier": Decimal("0.5"),
    },
}

# They leave room on one small machine: bound are requests, not tokens, nor what a model can take.
_UNBOUND: Final[dict[str, Any]] = {"tokens_per_minute": None, "max_context_tokens": None}
DEFAULT_TIERS: Final[dict[str, tuple[ServiceClass, dict[str, Any]]]] = {
    "premium": (
        ServiceClass.INTERACTIVE,
        {
            "max_queue_seconds": 60,
            "requests_per_minute": 60_000,
            "max_concurrent_requests": 1024,
            "max_output_tokens": 32_768,
            "price_multiplier": Decimal(1),
        },
    ),
    "standard": (
        ServiceClass.DOCUMENTS,
        {
            "requests_per_minute": 6_000,
            "max_concurrent_requests": 256,
            "default_max_output_tokens": 1024,
        },
    ),
    "free": (
        ServiceClass.INTERACTIVE,
        {
            "priority": 20,
            "weight": 1,
            "ttft_target_ms": 2_000,
            "inter_token_target_ms": 200,
            "uptime_percent": Decimal("99.0"),
            "requests_per_minute": 60,
            "max_concurrent_requests": 4,
            "max_output_tokens": 4_096,
            "max_pinned_adapters": 0,
            "max_projects": 20,
            "max_api_keys": 200,
            "max_members": 50,
            "max_quotas": 200,
            "max_webhooks": 4,
            "max_websockets": 50,
            "price_multiplier": Decimal(1),
        },
    ),
    "batch": (ServiceClass.BATCH, {}),
}


def tier_from_preset(name: str, service_class: ServiceClass, **changes: Any) -> Tier:
    """Return an unsaved tier."""
    return Tier(name=name, service_class=service_class, **{**PRESETS[service_class], **changes})


def ensure_default_tiers() -> None:
    """Add the default tiers that are missing; those that are there stay as they are."""
    present = set(Tier.objects.values_list("name", flat=True))
    for name, (service_class, changes) in DEFAULT_TIERS.items():
        if name not in present:
            tier_from_preset(name, service_class, **_UNBOUND, **changes).save()
