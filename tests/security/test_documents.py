"""The threat model and the ASVS table name tests and files that are there, and every row says
what holds it."""

import re
from pathlib import Path

import pytest

from tests.security import named_tests
from tests.support.places import ROOT

THREATS = ROOT / "THREAT_MODEL.md"
ASVS = ROOT / "docs" / "asvs.md"
# The last requirement of levels 1 and 2 in each section of ASVS 5.0.0; they begin with 1.
LAST = {
    "1.1": 2,
    "1.2": 9,
    "1.3": 11,
    "1.4": 3,
    "1.5": 2,
    "2.1": 3,
    "2.2": 3,
    "2.3": 4,
    "2.4": 1,
    "3.2": 2,
    "3.3": 4,
    "3.4": 6,
    "3.5": 5,
    "3.7": 2,
    "4.1": 3,
    "4.2": 1,
    "4.3": 2,
    "4.4": 4,
    "5.1": 1,
    "5.2": 3,
    "5.3": 2,
    "5.4": 3,
    "6.1": 3,
    "6.2": 12,
    "6.3": 4,
    "6.4": 4,
    "6.5": 5,
    "6.6": 3,
    "6.8": 4,
    "7.1": 3,
    "7.2": 4,
    "7.3": 2,
    "7.4": 5,
    "7.5": 2,
    "7.6": 2,
    "8.1": 2,
    "8.2": 3,
    "8.3": 1,
    "8.4": 1,
    "9.1": 3,
    "9.2": 4,
    "10.1": 2,
    "10.2": 2,
    "10.3": 4,
    "10.4": 11,
    "10.5": 5,
    "10.6": 2,
    "10.7": 3,
    "11.1": 2,
    "11.2": 3,
    "11.3": 3,
    "11.4": 4,
    "11.5": 1,
    "11.6": 1,
    "12.1": 3,
    "12.2": 2,
    "12.3": 4,
    "13.1": 1,
    "13.2": 5,
    "13.3": 2,
    "13.4": 5,
    "14.1": 2,
    "14.2": 4,
    "14.3": 3,
    "15.1": 3,
    "15.2": 3,
    "15.3": 7,
    "16.1": 1,
    "16.2": 5,
    "16.3": 4,
    "16.4": 3,
    "16.5": 3,
    "17.1": 1,
    "17.2": 4,
    "17.3": 2,
}
KINDS = ("`tests/", "open: ", "not applicable: ")
NAMED = re.compile(r"`(tests/[^`\s]+)`")
PLACE = re.compile(r"`((?:platform|tenants|inference|gpu_workers|requirements)/?[^`\s]*)`")


def rows() -> list[list[str]]:
    """The cells of each requirement's row of the ASVS table."""
    lines = ASVS.read_text(encoding="utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if re.match(r"\| \d", line)]


def requirements(number: str) -> list[str]:
    """The requirements of a row, which is one or `first-last` of a section."""
    first, _, last = number.partition("-")
    section, _, begin = first.rpartition(".")
    end = (last or first).removeprefix(f"{section}.")
    return [f"{section}.{each}" for each in range(int(begin), int(end) + 1)]


@pytest.mark.parametrize("page", [THREATS, ASVS], ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert len(named) > 40
    assert [name for name in named if not named_tests.exists(name)] == []


def test_every_file_that_the_threat_model_names_exists() -> None:
    named = PLACE.findall(THREATS.read_text(encoding="utf-8"))
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_promise_of_the_threat_model_has_a_test() -> None:
    held = THREATS.read_text(encoding="utf-8").split("\n## What holds\n")[1].split("\n## ")[0]
    promises = [line for line in held.splitlines() if line.startswith("| ")]
    promises = [line for line in promises if not line.startswith(("| ---", "| promise |"))]
    assert len(promises) > 30
    assert [line for line in promises if not NAMED.search(line.split(" | ")[2])] == []


def test_every_row_of_the_table_names_a_test_or_says_why_not() -> None:
    for number, what, held in rows():
        kind = next(kind for kind in KINDS if held.startswith(kind))
        assert what and len(held) > len(kind), number


def test_every_requirement_is_there_once() -> None:
    found = [each for number, *_ in rows() for each in requirements(number)]
    assert found == [f"{section}.{i + 1}" for section, last in LAST.items() for i in range(last)]
    assert len(found) == 253


def test_the_head_counts_the_rows() -> None:
    held = [row[2] for row in rows()]
    tests, is_open, other = (sum(each.startswith(kind) for each in held) for kind in KINDS)
    text = " ".join(ASVS.read_text(encoding="utf-8").split())
    assert f"{tests} rows are held by tests, {is_open} are open, {other} do not apply" in text
