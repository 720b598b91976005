"""One clock for all processes: Redis TIME, counted on by the monotonic clock."""

import time
from dataclasses import dataclass

import pytest

from gpu_workers.protocol.clock import SharedClock

REDIS_S = 1_790_000_000
SECOND_NS = 1_000_000_000
SIX_HOURS_NS = 6 * 3_600 * SECOND_NS


@dataclass
class Clocks:
    """Of this process: the monotonic one and the wall's, in ns."""

    monotonic_ns: int = 5 * SECOND_NS
    wall_ns: int = (REDIS_S - 700) * SECOND_NS

    def advance(self, nanoseconds: int) -> None:
        self.monotonic_ns += nanoseconds
        self.wall_ns += nanoseconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(time, "monotonic_ns", lambda: clocks.monotonic_ns)
    monkeypatch.setattr(time, "time_ns", lambda: clocks.wall_ns)
    return clocks


def ask(clock: SharedClock, clocks: Clocks, redis_s: int, *, seconds: int = 0) -> None:
    """Redis is asked, reads its clock at once, and its answer takes so long."""
    asked_ns = clocks.monotonic_ns
    clocks.advance(seconds * SECOND_NS)
    clock.note((redis_s, 250_000), asked_ns=asked_ns, answered_ns=clocks.monotonic_ns)


def test_a_process_that_has_not_heard_from_redis_goes_by_the_wall(clocks: Clocks) -> None:
    assert SharedClock().now_ms() == (REDIS_S - 700) * 1000


def test_a_process_goes_by_redis_whatever_becomes_of_the_wall(clocks: Clocks) -> None:
    clock = SharedClock()
    ask(clock, clocks, REDIS_S)
    assert clock.now_ms() == REDIS_S * 1000 + 250
    clocks.advance(3 * SECOND_NS)
    for step_ns in (-SIX_HOURS_NS, 2 * SIX_HOURS_NS):
        clocks.wall_ns += step_ns
        assert clock.now_ms() == (REDIS_S + 3) * 1000 + 250


def test_an_answer_that_came_late_changes_nothing_that_was_known_better(clocks: Clocks) -> None:
    clock = SharedClock()
    ask(clock, clocks, REDIS_S)
    ask(clock, clocks, REDIS_S, seconds=30)
    assert clock.now_ms() == (REDIS_S + 30) * 1000 + 250


@pytest.mark.parametrize("hours", [-6, 6])
def test_a_clock_of_redis_that_was_set_is_followed(clocks: Clocks, hours: int) -> None:
    clock = SharedClock()
    ask(clock, clocks, REDIS_S)
    ask(clock, clocks, REDIS_S + hours * 3_600)
    assert clock.now_ms() == (REDIS_S + hours * 3_600) * 1000 + 250
