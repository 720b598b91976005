from gpu_workers.figures.steps import SECONDS_KEPT, RecentSteps


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(steps: RecentSteps, clock: Clock, milliseconds: float, sequences: int) -> None:
    steps.begins()
    clock.now += milliseconds / 1000
    steps.ends(sequences)


def test_the_step_time_is_the_median_of_the_last_seconds() -> None:
    clock = Clock()
    steps = RecentSteps(most_sequences=8, clock=clock)
    for milliseconds in (20, 20, 900, 30, 20):
        run(steps, clock, milliseconds, 4)
    assert steps.median_us == 20_000
    assert steps.batch_used == 0.5


def test_an_idle_engine_has_no_step_time_and_uses_nothing_of_its_batch() -> None:
    clock = Clock()
    steps = RecentSteps(most_sequences=8, clock=clock)
    run(steps, clock, 20, 8)
    clock.now += SECONDS_KEPT
    assert steps.median_us is None
    assert steps.batch_used == 0


def test_idle_time_is_no_step() -> None:
    clock = Clock()
    steps = RecentSteps(most_sequences=1, clock=clock)
    run(steps, clock, 10, 1)
    clock.now += 3
    steps.ends(1)  # of one whose beginning nobody noted
    assert steps.median_us == 10_000
