"""What became of a row's tests, and the table that says so."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.security.table import Row


@dataclass
class Outcomes:
    """A pytest plugin that keeps how each test ended. Loaded in the process that collects the
    reports, which with xdist is not the one that runs the tests."""

    ended: dict[str, str] = field(default_factory=dict)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("@")[0]
        self.seconds[name] += report.duration
        if report.failed:
            self.ended[name] = "failed"
        elif report.skipped or report.when == "call":
            self.ended.setdefault(name, report.outcome)


@dataclass(frozen=True, kw_only=True)
class Result:
    """A row with how many of its cases ended how. `unfound` are those of its tests that named no
    case."""

    row: Row
    passed: int
    failed: int
    skipped: int
    seconds: float
    unfound: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether something was tried, all that was named was found, and nothing failed."""
        return self.passed > 0 and self.failed == 0 and not self.unfound


def result_of(row: Row, ended: Mapping[str, str], seconds: Mapping[str, float]) -> Result:
    """Count the cases of a row's tests by how they ended, each once."""
    cases = {test: [name for name in ended if _is_of(test, name)] for test in row.tests}
    names = {name for found in cases.values() for name in found}
    counts = Counter(ended[name] for name in names)
    return Result(
        row=row,
        passed=counts["passed"],
        failed=counts["failed"],
        skipped=counts["skipped"],
        seconds=sum(seconds.get(name, 0.0) for name in names),
        unfound=tuple(test for test, found in cases.items() if not found),
    )


def _is_of(test: str, name: str) -> bool:
    return name == test or name.startswith((f"{test}::", f"{test}[", f"{test}/"))


def table_of(results: Sequence[Result]) -> str:
    """Render the table: promise, cases, passed, failed, skipped, seconds, and whether it holds."""
    width = max(len(result.row.promise) for result in results)
    lines = [f"{'':{width}} cases passed failed skipped seconds"]
    area = ""
    for result in results:
        if result.row.area != area:
            area = result.row.area
            lines += ["", area]
        cases = result.passed + result.failed + result.skipped
        lines.append(
            f"{result.row.promise:{width}} {cases:5} {result.passed:6} {result.failed:6}"
            f" {result.skipped:7} {result.seconds:7.1f} {_verdict(result)}"
        )
    return "\n".join(line.rstrip() for line in lines)


def _verdict(result: Result) -> str:
    if result.unfound:
        return f"NO TEST {', '.join(result.unfound)}"
    if result.failed:
        return "BROKEN"
    return "" if result.holds else "NOT TRIED"
