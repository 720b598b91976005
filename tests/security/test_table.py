"""The table of `make security` cannot rot: what it names is there, and nothing counts as held that
was not tried."""

import pytest

from tests.security import named_tests
from tests.security.outcomes import Outcomes, Result, result_of, table_of
from tests.security.table import ROWS, Row

ROW = Row(area="doors", promise="are shut", tests=("tests/a.py::test_b", "tests/c"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.promise)
def test_every_test_of_a_row_exists(row: Row) -> None:
    assert row.tests
    assert [name for name in row.tests if not named_tests.exists(name)] == []


def test_a_test_that_is_not_there_is_told() -> None:
    assert named_tests.exists("tests/security/test_table.py")
    here = "tests/security/test_table.py::test_a_test_that_is_not_there_is_told"
    assert named_tests.exists(here) and not named_tests.exists(f"{here}[no_clause]")
    for name in ("tests/none.py", "tests/security/test_table.py::test_none", "tests/none", "docs"):
        assert not named_tests.exists(name)


def test_no_promise_stands_twice() -> None:
    promises = [row.promise for row in ROWS]
    assert len(promises) == len(set(promises))


def of(**ended: str) -> Result:
    names = {"b": "tests/a.py::test_b[1]", "b2": "tests/a.py::test_b[2]", "c": "tests/c/d.py::e"}
    others = {"tests/a.py::test_bc": "failed", "tests/cc/d.py::e": "failed"}
    return result_of(ROW, others | {names[name]: end for name, end in ended.items()}, {})


def test_a_row_counts_the_cases_of_its_tests_alone() -> None:
    result = of(b="passed", b2="skipped", c="passed")
    assert (result.passed, result.failed, result.skipped) == (2, 0, 1)
    assert result.holds


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [
        ({"b": "passed", "c": "failed"}, "BROKEN"),
        ({"b": "passed"}, "NO TEST tests/c"),
        ({}, "NO TEST tests/a.py::test_b, tests/c"),
        ({"b": "skipped", "c": "skipped"}, "NOT TRIED"),
    ],
)
def test_a_row_that_was_not_tried_does_not_hold(ended: dict[str, str], verdict: str) -> None:
    result = of(**ended)
    assert not result.holds
    assert table_of([result]).endswith(verdict)


def a_report(when: str, outcome: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid="tests/a.py::test_b@group",
        location=("tests/a.py", 1, "test_b"),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=None,
        when=when,  # type: ignore[arg-type]
        duration=1.5,
    )


@pytest.mark.parametrize(
    ("phases", "end"),
    [
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")], "passed"),
        ([("setup", "passed"), ("call", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "failed")], "failed"),
        ([("setup", "skipped"), ("teardown", "passed")], "skipped"),
    ],
)
def test_a_test_ends_as_its_worst_phase(phases: list[tuple[str, str]], end: str) -> None:
    outcomes = Outcomes()
    for when, outcome in phases:
        outcomes.pytest_runtest_logreport(a_report(when, outcome))
    assert outcomes.ended == {"tests/a.py::test_b": end}
    assert outcomes.seconds["tests/a.py::test_b"] == 1.5 * len(phases)
