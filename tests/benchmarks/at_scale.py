"""A database with the many tenants and keys that a benchmark wants, on servers of its own."""

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

# Before Django's settings: it puts the servers' addresses into the environment.
from tests.support.servers import servers

os.environ["DJANGO_SETTINGS_MODULE"] = "control_plane.settings"
os.environ["PENSTOCK_LOG_LEVEL"] = "WARNING"

TENANTS = 10_000
KEYS = 50_000


@dataclass(frozen=True, kw_only=True)
class Times:
    """Of many runs of one thing, in milliseconds. The p99 is the median of those of the rounds: a
    burst of whatever else the machine does falls on one or two of them."""

    runs: int
    median_ms: float
    p99_ms: float
    longest_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float], *, rounds: int = 1) -> "Times":
        length = math.ceil(len(seconds) / rounds)
        p99s = [_p99(seconds[at : at + length]) for at in range(0, len(seconds), length)]
        return cls(
            runs=len(seconds),
            median_ms=round(statistics.median(seconds) * 1000, 3),
            p99_ms=round(statistics.median(p99s) * 1000, 3),
            longest_ms=round(max(seconds) * 1000, 3),
        )

    def __str__(self) -> str:
        return (
            f"median {self.median_ms:g} ms, p99 {self.p99_ms:g} ms, "
            f"longest {self.longest_ms:g} ms ({self.runs} runs)"
        )


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[math.ceil(len(seconds) * 0.99) - 1]


def start() -> None:
    """PostgreSQL and both Redis with our tables, and Django ready for use."""
    import django
    from django.core.management import call_command

    servers().start_postgres()
    django.setup()
    call_command("migrate", verbosity=0)


def analyze() -> None:
    """What autovacuum would have done by the time that a database is so large."""
    from django.conf import settings

    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        owner.execute("VACUUM ANALYZE")


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def busy() -> str:
    """What else the machine does, as figures are printed beside it."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
