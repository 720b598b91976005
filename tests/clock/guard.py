"""Checks that all a run stands on sees the shifted clock: `python -m tests.clock.guard`.

It starts servers as a run does, under the clock that a run gets, and ends with a sentence and 1
where one of them shows another moment.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from redis import Redis

from tests.clock.shim import SHIFT_VARIABLE
from tests.support.servers import TestServers, servers

# What may lie between two readings on a machine with much to do.
APART_SECONDS = 5


def main() -> str | None:
    running = servers()
    running.start_postgres()
    return complaint_of(shifts_of(running), int(os.environ[SHIFT_VARIABLE]))


def complaint_of(seen: Mapping[str, float], wanted: int) -> str | None:
    """Return what is wrong with the shifts that were seen, in seconds by who saw them."""
    wrong = {name: shift for name, shift in seen.items() if abs(shift - wanted) > APART_SECONDS}
    if not wrong:
        return None
    told = ", ".join(f"{name} by {shift:.0f} s" for name, shift in wrong.items())
    return (
        f"The clock should be shifted by {wanted} s and is not everywhere: {told}. A process that "
        "is started without LD_PRELOAD, or cannot read the library, sees the true clock."
    )


def shifts_of(running: TestServers) -> dict[str, float]:
    """Read each clock: how far it is from the true one, in seconds."""
    shifts = {"Python": datetime.now(UTC).timestamp() - _true_time()}
    with psycopg.connect(running.superuser_url) as connection:
        (now,) = connection.execute("SELECT now()").fetchone() or (None,)
        assert isinstance(now, datetime)
        shifts["PostgreSQL"] = now.timestamp() - _true_time()
    for name, server in {"dispatch Redis": running.dispatch_redis, "Redis": running.redis}.items():
        with Redis.from_url(server.url) as client:
            seconds, _ = client.time()
            shifts[name] = float(seconds) - _true_time()
    return shifts


def _true_time() -> float:
    """Return the kernel's own time, which it stamps files with."""
    with tempfile.NamedTemporaryFile() as file:
        return Path(file.name).stat().st_mtime


if __name__ == "__main__":
    sys.exit(main())
