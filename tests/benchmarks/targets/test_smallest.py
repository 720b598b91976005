"""No target of the Makefile is forgotten by the suite."""

from tests.benchmarks.targets.smallest import MAKEFILE, NOT_STARTED, STARTED, targets


def test_each_target_is_started_by_the_suite_or_says_why_not() -> None:
    listed = targets(MAKEFILE.read_text(encoding="utf-8"))
    assert listed == STARTED.keys() | NOT_STARTED.keys()
    assert STARTED.keys() & NOT_STARTED.keys() == set()
    assert all(NOT_STARTED.values())


def test_every_rule_of_the_makefile_is_declared_as_a_target() -> None:
    text = MAKEFILE.read_text(encoding="utf-8")
    rules = {
        line.partition(":")[0]
        for line in text.splitlines()
        if line[:1].isalpha() and ":" in line and "=" not in line
    }
    assert rules == targets(text)


def test_targets_of_several_lines_and_lists_are_found() -> None:
    assert targets(".PHONY: up \\\n  down\nup:\n\t@x\n.PHONY: more\n") == {"up", "down", "more"}
