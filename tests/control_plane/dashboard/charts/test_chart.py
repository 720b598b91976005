"""A chart is a table first: exact to the last digit, with its days in UTC."""

from datetime import UTC, date, datetime, timedelta, timezone
from html import unescape

import pytest
from control_plane.dashboard.charts.chart import (
    Bar,
    Chart,
    Kind,
    Series,
    State,
    Target,
    Unit,
    bars,
    exact_dollars,
    exact_text,
)
from control_plane.dashboard.charts.samples import samples
from django.template.loader import render_to_string

DAYS = (date(2026, 11, 21), date(2026, 11, 22))


def rendered(chart: Chart) -> str:
    return unescape(render_to_string("dashboard/components/charts/chart.html", {"chart": chart}))


def a_chart(**changes: object) -> Chart:
    given: dict[str, object] = {
        "id": "spend",
        "title": "Spend",
        "unit": Unit.DOLLARS,
        "moments": DAYS,
        "series": [Series(name="web", hue=1, values=[1_234_567_890_123, None])],
    }
    return Chart(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (1_500_000_000, "$1.50"),
        (1_234_567_890_123, "$1,234.567890123"),
        (-10_000_000, "-$0.01"),
        # Beyond what a double holds: 9,007,199.254740993 dollars.
        (9_007_199_254_740_993, "$9,007,199.254740993"),
    ],
)
def test_money_is_exact_to_the_last_nano_dollar(nanos: int, text: str) -> None:
    assert exact_dollars(nanos) == text


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (1_240_417, Unit.TOKENS, "1,240,417 tokens"),
        (38.5, Unit.MILLISECONDS, "38.5 ms"),
        (99.95, Unit.PERCENT, "99.95 %"),
        (7, Unit.COUNT, "7"),
        (None, Unit.DOLLARS, "unknown"),
    ],
)
def test_amounts_have_their_unit_and_separators(
    amount: int | float | None, unit: Unit, text: str
) -> None:
    assert exact_text(amount, unit) == text


def test_the_table_holds_what_is_drawn_and_what_is_read() -> None:
    html = rendered(a_chart(targets=[Target(name="Budget", value=2 * 10**12)]))
    assert '<data value="1234567890123">$1,234.567890123</data>' in html
    assert '<data value="">unknown</data>' in html
    assert '<time datetime="2026-11-21">21 Nov 2026</time>' in html
    assert "Day (UTC)" in html and "Budget: $2,000.00" in html


def test_hours_are_told_in_utc_whatever_zone_they_came_in() -> None:
    hour = datetime(2026, 11, 22, 13, tzinfo=timezone(timedelta(hours=1)))
    html = rendered(a_chart(moments=[hour], series=[Series(name="web", hue=1, values=[1])]))
    assert '<time datetime="2026-11-22T12:00:00+00:00">22 Nov 2026, 12:00 UTC</time>' in html


def test_a_logarithmic_axis_says_so_and_cannot_be_stacked() -> None:
    assert "logarithmic axis" in rendered(a_chart(is_logarithmic=True))
    with pytest.raises(ValueError, match="logarithmic"):
        a_chart(is_logarithmic=True, kind=Kind.STACKED)


def test_a_series_that_does_not_fit_the_moments_is_refused() -> None:
    with pytest.raises(ValueError, match="2 moments"):
        a_chart(series=[Series(name="web", hue=1, values=[1])])


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (State.EMPTY, "Nothing happened in this period."),
        (State.LOADING, "Loading."),
        (State.ERROR, "could not be read."),
    ],
)
def test_a_panel_without_figures_says_why(state: State, told: str) -> None:
    html = rendered(a_chart(state=state))
    assert told in html and "<table" not in html


def test_old_figures_stay_and_say_since_when() -> None:
    as_of = datetime(2026, 11, 22, 12, tzinfo=UTC)
    html = rendered(a_chart(state=State.STALE, as_of=as_of, reason="Redis does not answer."))
    assert "old figures" in html and "22 Nov 2026, 12:00 UTC" in html
    assert "Redis does not answer." in html and "<table" in html


def test_no_moments_are_an_empty_panel() -> None:
    assert "<table" not in rendered(a_chart(moments=(), series=()))


def test_names_are_text_and_never_markup() -> None:
    series = [Series(name="<img src=x onerror=alert(1)>", hue=1, values=[1, 2])]
    html = render_to_string(
        "dashboard/components/charts/chart.html", {"chart": a_chart(series=series)}
    )
    assert "<img" not in html


def test_bars_are_measured_by_the_longest() -> None:
    found = bars([("web", 200), ("ops", 50), ("none", 0)], Unit.REQUESTS, hues={"web": 3})
    assert found[0] == Bar(name="web", text="200 requests", share=100, hue=3)
    assert [bar.share for bar in found] == [100, 25, 0]
    assert bars([], Unit.REQUESTS) == []


def test_every_state_is_shown_among_the_components() -> None:
    assert {chart.state for chart in samples()} == set(State)
