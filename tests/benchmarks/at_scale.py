"""A database with the many tenants and keys that a benchmark wants, on servers of its own."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Before Django's settings: it puts the servers' addresses into the environment.
from tests.servers import servers

os.environ["DJANGO_SETTINGS_MODULE"] = "control_plane.settings"
os.environ["PENSTOCK_LOG_LEVEL"] = "WARNING"

TENANTS = 10_000
KEYS = 50_000


@dataclass(frozen=True, kw_only=True)
class Times:
    """Of many runs of one thing, in milliseconds."""

    runs: int
    median_ms: float
    p99_ms: float
    longest_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        ordered = sorted(each * 1000 for each in seconds)
        return cls(
            runs=len(ordered),
            median_ms=round(statistics.median(ordered), 3),
            p99_ms=round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
            longest_ms=round(ordered[-1], 3),
        )

    def __str__(self) -> str:
        return (
            f"median {self.median_ms:g} ms, p99 {self.p99_ms:g} ms, "
            f"longest {self.longest_ms:g} ms ({self.runs} runs)"
        )


def start() -> None:
    """PostgreSQL and both Redis with our tables, and Django ready for use."""
    import django
    from django.core.management import call_command

    servers().start_postgres()
    django.setup()
    call_command("migrate", verbosity=0)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
