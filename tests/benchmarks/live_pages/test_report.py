"""The verdict: of all rounds together, and missed where either bar is."""

import pytest

from tests.benchmarks.live_pages.pages import Asked
from tests.benchmarks.live_pages.report import BOTH, WITH, WITHOUT, Verdict, markdown
from tests.benchmarks.load.rounds import Round, RoundResult, Sample
from tests.benchmarks.measured import Comparison, Measurement


def measured(tokens_per_second: float, ttft_ms: float) -> Measurement:
    samples = [Sample(ttft_ms=ttft_ms, duration_ms=900.0, completion_tokens=10) for _ in range(100)]
    wall_ms = 1000 * 1000 / tokens_per_second
    result = RoundResult(samples=samples, wall_ms=wall_ms, gaps_ms=(1.0, 2.0), arrivals=10)
    return Measurement(result=result, cpu={"gateway": 1.0}, memory={})


@pytest.mark.parametrize(
    ("tokens_per_second", "ttft_ms", "is_met"),
    [(971.0, 114.0, True), (969.0, 100.0, False), (1000.0, 116.0, False)],
)
def test_both_bars_have_to_be_met(tokens_per_second: float, ttft_ms: float, is_met: bool) -> None:
    comparison = Comparison(
        name=BOTH,
        round=Round(streams=64, requests=1, max_tokens=1, prompts=["p"]),
        sides={
            WITHOUT: [measured(each, 100.0) for each in (990.0, 1000.0, 1010.0)],
            WITH: [measured(tokens_per_second, ttft_ms) for _ in range(3)],
        },
    )
    asked = Asked(milliseconds=[10.0, 20.0, 30.0], bytes=30_000)
    verdict = Verdict.of(comparison, asked)
    assert verdict.is_met is is_met
    page = markdown(comparison, verdict, asked, {"cores": "2"})
    assert ("NOT met" in page) is not is_met
    assert "answered 3 times in the rounds, within 20 ms (p50)" in page and "10.0 kB each" in page
