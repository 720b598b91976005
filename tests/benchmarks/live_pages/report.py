"""What open pages cost, as a verdict and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tests.benchmarks.figures import Figures, shown, table
from tests.benchmarks.live_pages.pages import Asked
from tests.benchmarks.load.rounds import quantile
from tests.benchmarks.measured import Comparison, Measurement

WITH, WITHOUT = "with open pages", "without"
BOTH: Final = "64 streams on the real engine"
LEAST_TOKENS, MOST_TTFT = 0.97, 1.15


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Shares of what is without pages: medians over the rounds, of tokens a second and of the p99
    of the time to first token. Of all requests together the p99 is that of the one worst round."""

    tokens_per_second: float
    ttft_p99: float
    answers: int

    @classmethod
    def of(cls, comparison: Comparison, asked: Asked) -> "Verdict":
        beside, alone = comparison.sides[WITH], comparison.sides[WITHOUT]
        return cls(
            tokens_per_second=_rate(beside) / _rate(alone),
            ttft_p99=_ttft_p99(beside) / _ttft_p99(alone),
            answers=len(asked.milliseconds),
        )

    @property
    def is_met(self) -> bool:
        return self.tokens_per_second >= LEAST_TOKENS and self.ttft_p99 <= MOST_TTFT

    @property
    def sentence(self) -> str:
        verdict = "both met" if self.is_met else "NOT met"
        return (
            f"tokens/s {self.tokens_per_second:.3f}x (bar {LEAST_TOKENS}x or more), TTFT p99 "
            f"{self.ttft_p99:.2f}x (bar {MOST_TTFT}x or less): {verdict}"
        )


def markdown(
    comparison: Comparison, verdict: Verdict, asked: Asked, machine: Mapping[str, str]
) -> str:
    return (
        "\n\n".join(
            [
                "<!-- Written by `make bench-live-pages`; README.md says how to read it. -->",
                "# Open pages beside streams",
                "; ".join(f"{name} {value}" for name, value in machine.items()) + ".",
                f"{verdict.sentence}.",
                f"The pages were answered {verdict.answers:,} times in the rounds, within "
                f"{median(asked.milliseconds):.0f} ms (p50) and "
                f"{quantile(asked.milliseconds, 99):.0f} ms (p99), "
                f"{asked.bytes / verdict.answers / 1000:.1f} kB each.",
                "Median (lowest to highest) over the rounds, which took turns.",
                table(_rows(comparison)),
            ]
        )
        + "\n"
    )


def _rows(comparison: Comparison) -> list[list[str]]:
    rows = [
        [
            "side",
            "rounds",
            "tokens/s",
            "TTFT p50 ms",
            "TTFT p99 ms",
            "gateway, CPU ms per 1,000 tokens",
        ]
    ]
    for name, measurements in comparison.sides.items():
        figures = Figures.of(measurements)
        rows.append(
            [
                name,
                str(len(measurements)),
                shown(figures.tokens_per_second),
                shown(figures.ttft_p50_ms, 1),
                shown(figures.ttft_p99_ms, 1),
                shown(figures.cpu_ms_per_1000_tokens["gateway"], 1),
            ]
        )
    return rows


def _rate(measurements: Sequence[Measurement]) -> float:
    return median(each.result.tokens_per_second for each in measurements)


def _ttft_p99(measurements: Sequence[Measurement]) -> float:
    return median(each.result.ttft_p99_ms for each in measurements)
