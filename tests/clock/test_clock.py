"""The clock is shifted as it says, and the moments are the ones that their names promise."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.clock.guard import complaint_of
from tests.clock.shifts import BEFORE_THE_END, SHIFTS
from tests.clock.shim import COMPILERS, NoShim, compile_shim, shifted

HAS_NO_COMPILER = "no C compiler here: `make test-clock` says which to install"
YEAR_SECONDS = 365 * 86_400
THIRD_OF_JUNE = datetime(2031, 6, 3, 9, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return compile_shim(tmp_path_factory.mktemp("clock"))
    except NoShim:
        pytest.skip(HAS_NO_COMPILER)


@pytest.mark.parametrize(
    "program",
    [
        "import datetime; print(datetime.datetime.now(datetime.UTC).timestamp())",
        "import time; print(time.time())",
        # A child of a child, and libc's other doors to the same clock.
        "import subprocess; print(subprocess.check_output(['date', '+%s'], text=True))",
        "import ctypes; print(ctypes.CDLL(None).time(None))",
    ],
)
def test_a_process_and_its_children_see_the_shifted_clock(library: Path, program: str) -> None:
    command = [sys.executable, "-c", program]
    environ = shifted(library, YEAR_SECONDS)
    seen = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    expected = datetime.now(UTC).timestamp() + YEAR_SECONDS
    assert abs(float(seen.stdout) - expected) < 60


def test_what_waits_is_not_shifted(library: Path) -> None:
    command = [sys.executable, "-c", "import time; print(time.monotonic())"]
    environ = shifted(library, YEAR_SECONDS)
    seen = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    unshifted = subprocess.run(command, capture_output=True, text=True, check=True)
    assert abs(float(unshifted.stdout) - float(seen.stdout)) < 60


def test_without_a_compiler_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoShim) as problem:
        compile_shim(tmp_path / "clock")
    assert all(compiler in str(problem.value) for compiler in COMPILERS)
    assert "install" in str(problem.value)


def test_a_source_that_does_not_compile_is_said_with_the_compilers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int x = ;\n")
    monkeypatch.setattr("tests.clock.shim.SOURCE", broken)
    with pytest.raises(NoShim, match=r"broken\.c"):
        compile_shim(tmp_path / "clock")


def test_a_clock_that_is_not_shifted_is_named() -> None:
    seen = {"Python": 3600.2, "PostgreSQL": 0.0, "Redis": 3598.9}
    complaint = complaint_of(seen, 3600)
    assert complaint is not None and "PostgreSQL by 0 s" in complaint and "Redis" not in complaint
    assert complaint_of(seen | {"PostgreSQL": 3601.0}, 3600) is None


@pytest.mark.parametrize(
    ("shift", "now", "begins"),
    [
        ("week", THIRD_OF_JUNE, datetime(2031, 6, 10, 9, 30, tzinfo=UTC)),
        ("month", THIRD_OF_JUNE, datetime(2031, 7, 1, tzinfo=UTC) - BEFORE_THE_END),
        (
            "month",
            datetime(2031, 1, 31, 23, tzinfo=UTC),
            datetime(2031, 2, 1, tzinfo=UTC) - BEFORE_THE_END,
        ),
        (
            "month",
            datetime(2031, 12, 31, tzinfo=UTC),
            datetime(2032, 1, 1, tzinfo=UTC) - BEFORE_THE_END,
        ),
        ("month-begins", THIRD_OF_JUNE, datetime(2031, 7, 1, 0, 1, tzinfo=UTC)),
        ("year", THIRD_OF_JUNE, datetime(2032, 1, 1, tzinfo=UTC) - BEFORE_THE_END),
        ("leap-day", datetime(2027, 5, 5, tzinfo=UTC), datetime(2028, 2, 29, 12, tzinfo=UTC)),
        ("leap-day", datetime(2028, 3, 1, tzinfo=UTC), datetime(2032, 2, 29, 12, tzinfo=UTC)),
        ("midnight", THIRD_OF_JUNE, datetime(2031, 6, 3, 23, 58, tzinfo=UTC)),
    ],
)
def test_a_shift_begins_where_its_name_says(shift: str, now: datetime, begins: datetime) -> None:
    assert SHIFTS[shift](now) == begins


@pytest.mark.parametrize("day", range(0, 1461, 13))
def test_from_any_day_the_month_and_the_year_are_crossed_within_the_run(day: int) -> None:
    now = datetime(2026, 1, 1, 8, tzinfo=UTC) + timedelta(days=day)
    for shift in ("month", "year"):
        begins = SHIFTS[shift](now)
        ends = begins + BEFORE_THE_END
        assert begins > now
        assert (ends.day, ends.hour, ends.minute) == (1, 0, 0)
