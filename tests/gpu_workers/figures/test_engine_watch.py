from collections.abc import Callable

from gpu_workers.engine import EngineStats
from gpu_workers.figures.engine_watch import EngineWatch


def watch_of(
    stats: Callable[[], EngineStats], adapters: tuple[int, int] | None = None
) -> EngineWatch:
    return EngineWatch(stats, lambda: adapters)


def test_counts_are_those_of_the_last_minute() -> None:
    counted = {"asked": 0, "hit": 0}
    watch = watch_of(
        lambda: EngineStats(
            prefix_asked_tokens=counted["asked"], prefix_hit_tokens=counted["hit"], preemptions=3
        )
    )
    for second in range(200):
        counted["asked"] += 10
        counted["hit"] += 4 if second < 100 else 9
        figures = watch.figures(float(second))
    assert figures.prefix_asked_tokens == 600
    assert figures.prefix_hit_tokens == 540
    assert figures.preemptions == 0, "all of them are older"


def test_what_the_engine_does_not_tell_stays_unknown() -> None:
    figures = watch_of(EngineStats).figures(0.0)
    assert figures.kv_used is figures.step_us is figures.prefix_asked_tokens is None
    assert (
        figures.accepted_tokens is figures.adapters_in_slots is figures.adapters_in_memory is None
    )


def test_the_engine_is_asked_once_a_second_at_most() -> None:
    asked = []

    def stats() -> EngineStats:
        asked.append(1)
        return EngineStats(kv_used=0.25)

    watch = watch_of(stats, adapters=(1, 3))
    for tick in range(21):
        figures = watch.figures(tick / 10)
    assert len(asked) == 3
    assert (figures.kv_used, figures.adapters_in_slots, figures.adapters_in_memory) == (0.25, 1, 3)
