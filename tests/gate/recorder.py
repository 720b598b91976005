"""What a run of pytest says of its failures: a plugin for the process that started it."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

# xdist reports a test whose process died under this phase.
CRASHED = "???"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A test that failed in the run, in the first of its phases that did.

    `seconds` is how long that phase took, `message` the first line of what was raised.
    """

    test: str
    seconds: float
    message: str
    has_crashed: bool = False


class Recorder:
    """Keeps each failed test once, whatever could not be collected, and how many seconds the tests
    and fixtures of each file took."""

    def __init__(self) -> None:
        self.failures: dict[str, Failure] = {}
        self.uncollected: list[str] = []
        self.seconds_of_files: defaultdict[str, float] = defaultdict(float)
        self.folder = Path()

    def pytest_configure(self, config: pytest.Config) -> None:
        self.folder = config.rootpath

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.uncollected.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds_of_files[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            test = _without_group(report.nodeid)
            failure = Failure(
                test=test,
                seconds=report.duration,
                message=_first_line(report),
                has_crashed=str(report.when) == CRASHED,
            )
            self.failures.setdefault(test, failure)


def _without_group(nodeid: str) -> str:
    """xdist appends `@` and the group by which it shares a test out; a parameter may hold one too,
    the name of a group may not."""
    name, _, _ = nodeid.rpartition("@")
    return name or nodeid


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return next(iter(text.splitlines()), "")
