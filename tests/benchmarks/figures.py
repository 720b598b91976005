"""The figures of a side over its rounds, and how tables and files show them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.benchmarks.load.rounds import RoundResult
from tests.benchmarks.measured import ENGINE, LOAD, Measurement, Spread

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Figures:
    """`cpu_ms_per_1000_tokens` and `memory_mib` by program. `gap_p99_ms` is the p99 of the time
    between two arrivals of one stream, each of which holds `tokens_per_arrival`; TTFT without
    streaming is that of the whole answer."""

    tokens_per_second: Spread
    requests_per_second: Spread
    ttft_p50_ms: Spread
    ttft_p99_ms: Spread
    itl_p50_ms: Spread
    gap_p99_ms: Spread
    tokens_per_arrival: Spread
    tokens_per_step: Spread
    cpu_ms_per_1000_tokens: dict[str, Spread]
    cpu_in_front_ms_per_1000_tokens: Spread
    memory_mib: dict[str, float]

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "Figures":
        def over(value: Callable[[RoundResult], float]) -> Spread:
            return Spread.of(value(each.result) for each in measurements)

        programs = list(dict.fromkeys(name for each in measurements for name in each.cpu))
        return cls(
            tokens_per_second=over(lambda result: result.tokens_per_second),
            requests_per_second=over(lambda result: result.requests_per_second),
            ttft_p50_ms=over(lambda result: result.ttft_p50_ms),
            ttft_p99_ms=over(lambda result: result.ttft_p99_ms),
            itl_p50_ms=over(lambda result: result.itl_p50_ms),
            gap_p99_ms=over(lambda result: result.gaps_ms[1]),
            tokens_per_arrival=over(lambda result: result.tokens_per_arrival),
            tokens_per_step=Spread.of(
                each.result.tokens / each.steps if each.steps else 0.0 for each in measurements
            ),
            cpu_ms_per_1000_tokens={
                name: Spread.of(per_1000(each, each.cpu.get(name, 0.0)) for each in measurements)
                for name in programs
            },
            cpu_in_front_ms_per_1000_tokens=Spread.of(
                per_1000(each, sum(each.in_front.values())) for each in measurements
            ),
            memory_mib={
                name: Spread.of(each.memory.get(name, 0) / MIB for each in measurements).median
                for name in programs
            },
        )

    @property
    def cpu_in_front(self) -> dict[str, float]:
        """Return the medians of all programs in front of the engine, the largest first."""
        medians = {
            name: spread.median
            for name, spread in self.cpu_ms_per_1000_tokens.items()
            if name not in (ENGINE, LOAD)
        }
        return dict(sorted(medians.items(), key=lambda each: -each[1]))


def per_1000(measurement: Measurement, seconds: float) -> float:
    """Return milliseconds per 1,000 tokens."""
    return 1e6 * seconds / measurement.result.tokens


def shown(spread: Spread, digits: int = 0) -> str:
    """Return `median (low to high)`."""
    low, high = f"{spread.low:,.{digits}f}", f"{spread.high:,.{digits}f}"
    return f"{spread.median:,.{digits}f} ({low} to {high})"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of them the head, as Markdown."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
