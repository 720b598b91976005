"""The results as a table for people and as JSON, held against the bars; plots beside them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.fairness.measure import Figures
from tests.benchmarks.fairness.simulate import Run
from tests.benchmarks.fairness.workloads import Workload
from tests.benchmarks.figures import table
from tests.benchmarks.plot import bars, lines

OURS = "Penstock"
TTFT_BAR, ITL_BAR, SHARE_BAR, JAIN_BAR, THROUGHPUT_BAR = 1.5, 1.15, 0.02, 0.99, 0.97
ADAPTER_THROUGHPUT_BAR = 1.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """One workload under every policy. `alone`: the flooder's slots filled by tenants within their
    share, first-come; `unqueued`: the same with slots to spare, so that nobody waits for one."""

    workload: Workload
    figures: dict[str, Figures]
    alone: Figures | None
    unqueued: Figures | None

    @property
    def ours(self) -> Figures:
        return self.figures[OURS]

    @property
    def throughput(self) -> float:
        return self.ours.units_per_second / self.figures["first-come"].units_per_second

    @property
    def standstill(self) -> float | None:
        """How long a request that needed an adapter waited and no turn began, in parts of the drain
        bound."""
        mine = self.ours.adapters
        return None if mine is None else mine.longest_standstill_ms / mine.bound_ms

    @property
    def longest_wait(self) -> float | None:
        """How long one waited at all, in the same parts."""
        mine = self.ours.adapters
        return None if mine is None else mine.longest_wait_ms / mine.bound_ms


def markdown(results: list[Result], seconds: float) -> str:
    """Tables, then what falls short."""
    parts = [
        "<!-- Written by `make bench-fairness`; see docs/fairness.md. -->",
        f"Virtual time, {seconds:.0f} s a run, the first fifth left out.",
        "## Under a flood: TTFT p99 of the victims, ms",
        _latency_table([each for each in results if each.alone]),
        "## Adapters: waits, ms, and loads",
        _adapter_table(results),
        "## Shares, the bound and throughput",
        _share_table(results),
        "## Against the bars",
        "\n".join(f"- {line}" for line in verdicts(results)),
    ]
    return "\n\n".join(parts) + "\n"


def verdicts(results: list[Result]) -> list[str]:
    floods = [each for each in results if each.alone]
    return [
        _verdict(
            f"victims' TTFT p99 at most {TTFT_BAR}x of alone",
            [(each, _times(each.ours.ttft_p99_ms, each.alone, "ttft_p99_ms")) for each in floods],
            lambda value: value <= TTFT_BAR,
        ),
        _verdict(
            f"the same with slots to spare at most {TTFT_BAR}x",
            [
                (each, _times(each.ours.ttft_p99_ms, each.unqueued, "ttft_p99_ms"))
                for each in floods
            ],
            lambda value: value <= TTFT_BAR,
        ),
        _verdict(
            f"inter-token p99 at most {ITL_BAR}x of alone",
            [(each, _times(each.ours.itl_p99_ms, each.alone, "itl_p99_ms")) for each in floods],
            lambda value: value <= ITL_BAR,
        ),
        _verdict(
            f"weighted shares within {SHARE_BAR:.0%}",
            [(each, each.ours.share_error) for each in results],
            lambda value: value <= SHARE_BAR,
        ),
        _verdict(
            f"weighted Jain index at least {JAIN_BAR}",
            [(each, each.ours.jain) for each in results],
            lambda value: value >= JAIN_BAR,
        ),
        _verdict(
            "no violation of the bound",
            [(each, float(each.ours.violations)) for each in results],
            lambda value: value == 0,
        ),
        _verdict(
            f"throughput at least {THROUGHPUT_BAR} of first-come, where all ask alike",
            [(each, each.throughput) for each in results if each.workload.is_uniform],
            lambda value: value >= THROUGHPUT_BAR,
        ),
        _verdict(
            f"throughput of a flood with adapters at least {ADAPTER_THROUGHPUT_BAR} of first-come",
            [(each, each.throughput) for each in floods if each.ours.adapters],
            lambda value: value >= ADAPTER_THROUGHPUT_BAR,
        ),
        _verdict(
            "no wait for a turn to begin longer than the drain bound",
            [(each, each.standstill) for each in results],
            lambda value: value <= 1,
        ),
        _verdict(
            "no wait at all longer than it, where all are within their share",
            [(each, each.longest_wait) for each in results if not each.alone],
            lambda value: value <= 1,
        ),
    ]


def write(folder: Path, results: list[Result], runs: dict[str, Run], seconds: float) -> None:
    """results.md, results.json and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(markdown(results, seconds), encoding="utf-8")
    report = {each.workload.name: _as_json(each) for each in results}
    (folder / "results.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name, run in runs.items():
        (folder / f"{name}.svg").write_text(_service_plot(name, run), encoding="utf-8")
    groups = {
        each.workload.name.removeprefix("20x "): {
            name: figures.ttft_p99_ms for name, figures in each.figures.items()
            if figures.ttft_p99_ms
        }
        for each in results
        if each.alone and each.workload.name.startswith("20x")
    }  # fmt: skip
    (folder / "ttft.svg").write_text(
        bars("TTFT p99 of nine tenants beside one at 20 times its share", "ms", groups),
        encoding="utf-8",
    )


def _latency_table(results: list[Result]) -> str:
    names = list(results[0].figures) if results else []
    rows = [["workload", *names, "alone", "ratio", "slots to spare", "ratio", "inter-token ratio"]]
    for each in results:
        ttft = each.ours.ttft_p99_ms
        rows.append(
            [
                each.workload.name,
                *(_number(figures.ttft_p99_ms) for figures in each.figures.values()),
                _number(each.alone.ttft_p99_ms if each.alone else None),
                _number(_times(ttft, each.alone, "ttft_p99_ms"), 2),
                _number(each.unqueued.ttft_p99_ms if each.unqueued else None),
                _number(_times(ttft, each.unqueued, "ttft_p99_ms"), 2),
                _number(_times(each.ours.itl_p99_ms, each.alone, "itl_p99_ms"), 2),
            ]
        )
    return table(rows)


def _adapter_table(results: list[Result]) -> str:
    rows = [["workload", "policy", "TTFT p99", "longest wait", "without a turn", "bound", "loads",
             "switches", "throughput / first-come"]]  # fmt: skip
    for each in [each for each in results if each.ours.adapters]:
        base = each.figures["first-come"].units_per_second
        for name, figures in each.figures.items():
            if figures.adapters:
                is_ours = name == OURS
                rows.append(
                    [
                        each.workload.name,
                        name,
                        _number(figures.ttft_p99_ms),
                        _number(figures.adapters.longest_wait_ms),
                        _number(figures.adapters.longest_standstill_ms if is_ours else None),
                        _number(figures.adapters.bound_ms if is_ours else None),
                        str(figures.adapters.loads),
                        str(figures.adapters.switches),
                        f"{figures.units_per_second / base:.3f}",
                    ]
                )
    return table(rows)


def _share_table(results: list[Result]) -> str:
    rows = [
        ["workload", "policy", "share error", "Jain", "largest gap / bound", "violations",
         "throughput / first-come", "refused"]
    ]  # fmt: skip
    for each in results:
        base = each.figures["first-come"].units_per_second
        for name, figures in each.figures.items():
            rows.append(
                [
                    each.workload.name,
                    name,
                    "-" if figures.share_error is None else f"{figures.share_error:.2%}",
                    _number(figures.jain, 4),
                    _number(figures.largest_gap_of_bound, 2),
                    str(figures.violations),
                    _number(figures.units_per_second / base, 3),
                    str(figures.refused),
                ]
            )
    return table(rows)


def _verdict(bar: str, values: list[tuple[Result, float | None]], is_met: object) -> str:
    assert callable(is_met)
    known = [(each.workload.name, value) for each, value in values if value is not None]
    short = [f"{name} ({value:.4g})" for name, value in known if not is_met(value)]
    met = f"{bar}: {len(known) - len(short)} of {len(known)} workloads"
    return met + (f"; SHORT: {', '.join(short)}" if short else "")


def _times(value: float | None, base: Figures | None, field: str) -> float | None:
    if value is None or base is None:
        return None
    return value / float(getattr(base, field))


def _as_json(result: Result) -> dict[str, object]:
    others = {"alone": result.alone, "alone, slots to spare": result.unqueued}
    figures = result.figures | {name: each for name, each in others.items() if each}
    return {name: asdict(each) for name, each in figures.items()}


def _service_plot(name: str, run: Run) -> str:
    every = max(1, len(run.samples) // 150)
    names = sorted(run.workload.tenants, key=lambda each: -run.samples[-1].served[each])[:8]
    series = {
        each: [(sample.at_ms / 1000, sample.served[each]) for sample in run.samples[::every]]
        for each in names
    }
    return lines(f"Service: {name.replace('_', ' ')}", "input + 2 x output tokens", series)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
