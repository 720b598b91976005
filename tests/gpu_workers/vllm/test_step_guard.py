"""While an engine's steps are slow, the newest request that follows a structure is ended."""

from functools import partial

import pytest

from gpu_workers.vllm.structures.step_guard import SLOW_STEPS, StepGuard

MOST = 0.3


class Steps:
    """An engine's steps, one after another."""

    def __init__(self) -> None:
        self.guard = StepGuard(most_seconds=MOST)
        self.ended: list[str] = []
        self.now = 1000.0

    def begin(self, *request_ids: str) -> None:
        for request_id in request_ids:
            self.guard.begins(request_id, partial(self.ended.append, request_id))

    def take(self, count: int, seconds: float, *, has_prompt: bool = False) -> None:
        for _ in range(count):
            self.now += seconds
            self.guard.step(self.now, has_prompt=has_prompt)


@pytest.fixture
def steps() -> Steps:
    steps = Steps()
    steps.begin("first", "second", "third")
    steps.take(1, 0.01)
    return steps


def test_the_newest_ends_after_several_slow_steps(steps: Steps) -> None:
    steps.take(SLOW_STEPS - 1, 0.4)
    assert steps.ended == []
    steps.take(1, 0.4)
    assert steps.ended == ["third"]
    steps.take(SLOW_STEPS, 0.4)
    assert steps.ended == ["third", "second"]


def test_slow_steps_that_are_not_in_a_row_end_nobody(steps: Steps) -> None:
    for _ in range(5):
        steps.take(SLOW_STEPS - 1, 9.0)
        steps.take(1, 0.1)
    assert steps.ended == []


def test_steps_with_prompts_tell_nothing(steps: Steps) -> None:
    steps.take(10, 2.0, has_prompt=True)
    assert steps.ended == []
    for _ in range(SLOW_STEPS):
        steps.take(1, 2.0, has_prompt=True)
        steps.take(1, 0.4)
    assert steps.ended == ["third"]


def test_a_load_of_an_adapter_makes_no_step_slow(steps: Steps) -> None:
    """Who loads may be another tenant than who follows a structure."""
    for _ in range(3 * SLOW_STEPS):
        with steps.guard.loading():
            steps.take(1, 0.01)
        steps.take(1, 2.0)
    assert steps.ended == []
    for _ in range(SLOW_STEPS):
        with steps.guard.loading():
            steps.take(2, 2.0)
        steps.take(1, 2.0)
        assert steps.ended == []
        steps.take(1, 0.4)
    assert steps.ended == ["third"], "and hides none that is"


def test_who_has_ended_is_not_ended_again(steps: Steps) -> None:
    for request_id in ("third", "second", "nobody"):
        steps.guard.ends(request_id)
    steps.take(3 * SLOW_STEPS, 0.4)
    assert steps.ended == ["first"]


def test_without_structures_no_step_is_too_slow_and_idle_time_is_no_step() -> None:
    steps = Steps()
    for number in range(2 * SLOW_STEPS):
        steps.take(1, 60.0)
        steps.begin(f"{number}")
        steps.take(2, 0.01)
        steps.guard.ends(f"{number}")
    assert steps.ended == []
    steps.take(2 * SLOW_STEPS, 60.0)


def test_a_request_of_several_prompts_is_ended_once(steps: Steps) -> None:
    steps.begin("third", "third")
    steps.take(2 * SLOW_STEPS, 0.4)
    assert steps.ended == ["third", "second"]
