import io

import pytest
from local_stack.installation.progress import SECONDS_BETWEEN_LINES, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, to be changed by the test."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_on_a_terminal_one_line_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = Progress(stream)
    for seconds in range(50):
        progress.show(f"Installing, {seconds} s")
    progress.say("Done.")
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("\r\x1b[KDone.\n")


def test_on_a_terminal_a_line_is_never_longer_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    Progress(stream).show("x" * 100)
    assert stream.getvalue() == "x" * 39


def test_elsewhere_a_line_is_written_every_fifteen_seconds(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for second in range(60):
        clock[0] = 100.0 + second
        progress.show(f"Installing, {second} s")
    lines = stream.getvalue().splitlines()
    assert lines == [
        f"Installing, {second} s" for second in range(0, 60, int(SECONDS_BETWEEN_LINES))
    ]


def test_elsewhere_what_stays_is_always_written(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.show("Installing, 0 s")
    progress.say("Done.")
    assert stream.getvalue() == "Installing, 0 s\nDone.\n"
