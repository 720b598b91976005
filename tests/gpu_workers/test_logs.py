"""What a worker's log tells, and what it must not."""

import io
from collections.abc import Iterator

import pytest
import structlog

from gpu_workers.logs import configure_logging


@pytest.fixture
def configuration() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_traceback_names_places_and_shows_no_values(
    log_format: str, configuration: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frames of a request that failed hold its prompt."""
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    configure_logging(log_format, "INFO")

    def fail(prompt: str) -> None:
        raise ValueError("no such place")

    try:
        fail(" ".join(["what", "nobody", "may", "read"]))
    except ValueError:
        structlog.get_logger("tests").exception("request_failed")
    told = stderr.getvalue()
    assert "no such place" in told
    assert __name__.rpartition(".")[2] in told
    assert "nobody may read" not in told
