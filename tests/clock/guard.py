"""All processes of a run see the shifted clock: a pytest plugin that checks it first."""

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from tests.clock.shim import SHIFT_VARIABLE
from tests.support.servers import servers

# What may lie between two readings on a machine with much to do.
APART_SECONDS = 20


@pytest.fixture(scope="session", autouse=True)
def _every_clock_is_shifted(django_db_setup: None) -> None:
    shift = int(os.environ[SHIFT_VARIABLE])
    expected = _true_time() + shift
    readings = {"Python": datetime.now(UTC).timestamp(), **_of_the_servers()}
    wrong = {name: at for name, at in readings.items() if abs(at - expected) > APART_SECONDS}
    if wrong:
        told = ", ".join(f"{name} {datetime.fromtimestamp(at, UTC)}" for name, at in wrong.items())
        raise pytest.UsageError(
            f"The clock should be shifted by {shift} s to {datetime.fromtimestamp(expected, UTC)}, "
            f"but it is not everywhere: {told}. A process was started without LD_PRELOAD."
        )


def _true_time() -> float:
    """Return the kernel's own time, which it stamps files with."""
    with tempfile.NamedTemporaryFile() as file:
        return Path(file.name).stat().st_mtime


def _of_the_servers() -> dict[str, float]:
    running = servers()
    with psycopg.connect(running.superuser_url) as connection:
        (database,) = connection.execute("SELECT now()").fetchone() or (None,)
    assert isinstance(database, datetime)
    found = {"PostgreSQL": database.timestamp()}
    for name, server in {"dispatch Redis": running.dispatch_redis, "Redis": running.redis}.items():
        with Redis.from_url(server.url) as client:
            seconds, _ = client.time()
            found[name] = float(seconds)
    return found
