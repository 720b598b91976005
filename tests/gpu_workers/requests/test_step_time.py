"""How long a step of the engine takes, by the progress of its requests."""

from gpu_workers.engine import EngineLoad
from gpu_workers.requests.step_time import StepTime, StepWatch
from gpu_workers.transport import Progress


def progress(**tokens: int) -> list[Progress]:
    return [
        Progress(request_id=name, attempt=1, prompt_tokens=5, completion_tokens=count)
        for name, count in tokens.items()
    ]


def test_a_step_is_the_time_in_which_the_quickest_request_gains_a_token() -> None:
    steps = StepTime()
    assert steps.measure(progress(a=3, b=7), now=10.0) == 0
    assert steps.measure(progress(a=13, b=27), now=10.2) == 10_000


def test_the_time_of_loads_makes_no_step_longer() -> None:
    steps = StepTime()
    steps.measure(progress(a=3), now=10.0, loading_seconds=4.0)
    assert steps.measure(progress(a=13), now=10.5, loading_seconds=4.3) == 20_000
    assert steps.measure(progress(a=14), now=10.7, loading_seconds=4.6) == 0


def test_what_came_or_ended_since_tells_nothing() -> None:
    steps = StepTime()
    steps.measure(progress(a=3), now=10.0)
    assert steps.measure(progress(b=40), now=10.2) == 0
    assert steps.measure(progress(), now=10.4) == 0
    assert steps.measure(progress(a=50), now=10.6) == 0


def test_the_sequences_of_one_request_gain_a_token_each_in_one_step() -> None:
    """Else a worker with a wide request would make all others of its pool look slow."""
    steps = StepTime()
    for count, now in [(32, 10.0), (192, 10.2)]:
        wide = Progress(
            request_id="w", attempt=1, prompt_tokens=5, completion_tokens=count, sequences=16
        )
        measured = steps.measure([wide], now=now)
    assert measured == 20_000


def test_an_engine_that_stands_still_has_no_step_time() -> None:
    steps = StepTime()
    steps.measure(progress(a=3), now=10.0)
    assert steps.measure(progress(a=3), now=10.2) == 0


def at_step(steps: int, *, held: int = 1) -> EngineLoad:
    return EngineLoad(running=held, waiting=0, held=held, steps=steps)


def looked_at(watch: StepWatch, load: EngineLoad, *, until: float, since: float = 0.0) -> StepWatch:
    """Looked at each second."""
    for second in range(int(since), int(until) + 1):
        watch.look(load, float(second))
    return watch


def test_an_engine_that_holds_requests_and_makes_no_step_hangs() -> None:
    watch = StepWatch(least_seconds=60)
    assert not looked_at(watch, at_step(7), until=60).is_hung
    assert looked_at(watch, at_step(7), since=61, until=62).is_hung
    watch.look(at_step(8), 63)
    assert not watch.is_hung


def test_one_that_holds_nothing_may_rest_for_ever() -> None:
    assert not looked_at(StepWatch(least_seconds=60), at_step(7, held=0), until=1000).is_hung


def test_one_whose_steps_are_long_is_given_as_much_time() -> None:
    watch = looked_at(StepWatch(least_seconds=60), at_step(1), until=50)
    assert not looked_at(watch, at_step(2), since=51, until=190).is_hung
    assert looked_at(watch, at_step(2), since=191, until=210).is_hung


def test_who_was_kept_from_looking_blames_nobody() -> None:
    watch = StepWatch(least_seconds=60)
    watch.look(at_step(7), 0.0)
    watch.look(at_step(7), 0.5)
    watch.look(at_step(7), 3600.0)
    assert not watch.is_hung
