"""How long a step of the engine takes, by the progress of its requests."""

from gpu_workers.requests.step_time import StepTime
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
