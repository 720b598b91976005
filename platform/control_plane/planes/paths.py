"""Which plane answers a path: one table, for the entry points and the proxy before them
(`platform/edge/Caddyfile`, which a test compares with it)."""

from enum import StrEnum
from typing import Final

UPLOADS: Final = "/v1/uploads"


class Plane(StrEnum):
    """A kind of process."""

    # Tokens: Redis alone, neither PostgreSQL nor Django's secret.
    GATEWAY = "gateway"
    # People and money: pages, /api/v1, exports, sign-on, webhooks, files.
    MANAGEMENT = "management"


# A path and all below it; of several the first. Probes and /metrics are each process' own.
TABLE: Final[tuple[tuple[str, Plane], ...]] = (
    (UPLOADS, Plane.MANAGEMENT),
    ("/v1", Plane.GATEWAY),
    ("/ws", Plane.GATEWAY),
    # Which say that /v1 is missing.
    ("/chat/completions", Plane.GATEWAY),
    ("/completions", Plane.GATEWAY),
    ("/models", Plane.GATEWAY),
    ("/", Plane.MANAGEMENT),
)


def is_below(path: str, prefix: str) -> bool:
    """Return whether a path is `prefix` or below it: /v1/models is below /v1, /v1x is not."""
    return path == prefix or path.startswith(f"{prefix.rstrip('/')}/")


def plane_of(path: str) -> Plane:
    """Return which plane answers a path."""
    for prefix, plane in TABLE:
        if is_below(path, prefix):
            return plane
    return Plane.MANAGEMENT
