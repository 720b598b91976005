"""The four SLA tiers that a new installation starts with. Operators may change them all."""

from tenants.models import Tier

# What a deployment promises is its operator's to decide; these leave room on one small machine.
DEFAULT_TIERS: tuple[dict[str, int | str], ...] = (
    {
        "name": "premium",
        "priority": 0,
        "weight": 8,
        "ttft_target_ms": 300,
        "max_queue_seconds": 60,
        "requests_per_minute": 60_000,
        "max_concurrent_requests": 1024,
        "default_max_output_tokens": 1024,
        "max_output_tokens": 32_768,
    },
    {
        "name": "standard",
        "priority": 10,
        "weight": 4,
        "ttft_target_ms": 800,
        "max_queue_seconds": 60,
        "requests_per_minute": 6_000,
        "max_concurrent_requests": 256,
        "default_max_output_tokens": 1024,
        "max_output_tokens": 16_384,
    },
    {
        "name": "free",
        "priority": 20,
        "weight": 1,
        "ttft_target_ms": 2_000,
        "max_queue_seconds": 30,
        "requests_per_minute": 60,
        "max_concurrent_requests": 4,
        "default_max_output_tokens": 1024,
        "max_output_tokens": 4_096,
    },
    {
        "name": "batch",
        "priority": 30,
        "weight": 1,
        "ttft_target_ms": 5_000,
        "max_queue_seconds": 600,
        "requests_per_minute": 6_000,
        "max_concurrent_requests": 512,
        "default_max_output_tokens": 1024,
        "max_output_tokens": 32_768,
    },
)


def ensure_default_tiers() -> None:
    """Add the default tiers that are missing; those that are there stay as they are."""
    present = set(Tier.objects.values_list("name", flat=True))
    for tier in DEFAULT_TIERS:
        if tier["name"] not in present:
            Tier.objects.create(**tier)
