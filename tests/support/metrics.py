"""What this process has counted, as a scrape of its metrics would show it."""

from prometheus_client import REGISTRY


def sample(name: str, **labels: str) -> float:
    """Return the value under its exported name, which ends in `_total` for a counter."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
