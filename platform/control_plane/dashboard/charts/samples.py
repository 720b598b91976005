"""Charts for /operators/components: every kind in every state, of figures that are the same each
time."""

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from control_plane.dashboard.charts.chart import Bar, Chart, Kind, Series, State, Target, Unit, bars
from control_plane.dashboard.charts.hues import OTHER_HUE, hues

_FIRST = date(2026, 11, 1)
_NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
_PROJECTS = ("web", "search", "support", "batch jobs")


def samples() -> list[Chart]:
    return [_spend(), _latency(), _all_hues(), *_states()]


def sample_bars() -> list[Bar]:
    names = [*_PROJECTS, "other"]
    amounts = [48_120_450_300, 21_004_000_000, 9_870_000_000, 1_204_000_001, 300_000_000]
    return bars(
        list(zip(names, amounts, strict=True)),
        Unit.DOLLARS,
        hues=hues(_PROJECTS) | {"other": OTHER_HUE},
    )


def _spend() -> Chart:
    chosen = hues(_PROJECTS)
    days = [_FIRST + timedelta(days=day) for day in range(30)]
    return Chart(
        id="sample-spend",
        title="Spend by project",
        unit=Unit.DOLLARS,
        kind=Kind.STACKED,
        moments=days,
        series=[
            *(
                Series(name=name, hue=chosen[name], values=[_wave(day, place) for day in range(30)])
                for place, name in enumerate(_PROJECTS)
            ),
            Series(name="other", hue=OTHER_HUE, values=[_wave(day, 7) // 6 for day in range(30)]),
        ],
        targets=[Target(name="Daily budget", value=14_000_000_000)],
    )


def _latency() -> Chart:
    hours = [_NOON - timedelta(hours=47 - hour) for hour in range(48)]
    chosen = hues(["p50", "p95", "p99"])
    return Chart(
        id="sample-latency",
        title="Time to first token",
        unit=Unit.MILLISECONDS,
        is_logarithmic=True,
        moments=hours,
        series=[
            Series(name=name, hue=chosen[name], values=[_wait(hour, factor) for hour in range(48)])
            for name, factor in (("p50", 1.0), ("p95", 4.2), ("p99", 13.0))
        ],
        targets=[Target(name="Promised for 99 %", value=500)],
    )


def _all_hues() -> Chart:
    names = [f"model {letter}" for letter in "ABCDEFGH"]
    days = [_FIRST + timedelta(days=day) for day in range(14)]
    return Chart(
        id="sample-hues",
        title="The eight hues",
        unit=Unit.REQUESTS,
        moments=days,
        series=[
            Series(
                name=name,
                hue=hue,
                values=[1000 * hue + round(300 * math.sin(day / 2 + hue)) for day in range(14)],
            )
            for hue, name in enumerate(names, start=1)
        ],
    )


def _states() -> list[Chart]:
    days = [_FIRST + timedelta(days=day) for day in range(7)]
    one = [Series(name="requests", hue=1, values=[120, 340, 0, None, 410, 380, 510])]
    panel = Chart(id="sample", title="Requests", unit=Unit.REQUESTS)
    return [
        replace(
            panel,
            id="sample-empty",
            state=State.EMPTY,
            reason="No requests in these days.",
        ),
        replace(panel, id="sample-loading", state=State.LOADING),
        replace(
            panel,
            id="sample-stale",
            state=State.STALE,
            moments=days,
            series=one,
            as_of=_NOON,
            reason="Redis does not answer; the next try is in 2 s.",
        ),
        replace(
            panel,
            id="sample-error",
            state=State.ERROR,
            reason="PostgreSQL did not answer in time; the next try is in 10 s.",
        ),
    ]


def _wave(day: int, place: int) -> int:
    week = 0.45 if (_FIRST + timedelta(days=day)).weekday() > 4 else 1.0
    size = 6_200_000_000 / (place + 1)
    return int(size * week * (0.8 + 0.2 * math.sin(day / 3 + place))) + 7 * place + 1


def _wait(hour: int, factor: float) -> float:
    busy = 1 + 1.6 * max(0.0, math.sin((hour % 24 - 7) / 24 * 2 * math.pi))
    return round(38 * factor * busy * (1 + 0.05 * math.cos(hour * 1.7)), 1)
