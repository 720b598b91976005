"""Penstock, vLLM's own server and AsyncLLM alone: tables, plots and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.figures import Figures, shown, table
from tests.benchmarks.measured import ENGINE, Comparison
from tests.benchmarks.plot import bars, stacks
from tests.benchmarks.serving.servers import CEILING
from tests.benchmarks.sides import OURS, VLLMS

NAME = "serving"


def markdown(comparisons: Sequence[Comparison], machine: Mapping[str, str]) -> str:
    return (
        "\n\n".join(
            [
                "<!-- Written by `make bench`; README.md says how to read it. -->",
                "# Beside vLLM's own server",
                "; ".join(f"{name} {value}" for name, value in machine.items()) + ".",
                "Median (lowest to highest) over the rounds, which took turns. Without streaming "
                "the time to the first token is that to the whole answer.",
                speed_table(comparisons),
                "## Penstock beside vLLM's own server",
                "\n".join(f"- {line}" for line in ratios(comparisons)),
                "## CPU, ms per 1,000 tokens",
                cpu_table(comparisons),
                "## Memory, MiB",
                memory_table(comparisons),
            ]
        )
        + "\n"
    )


def ratios(comparisons: Sequence[Comparison]) -> list[str]:
    lines = []
    for each in comparisons:
        if OURS not in each.sides or VLLMS not in each.sides:
            continue
        ours, vllms = Figures.of(each.sides[OURS]), Figures.of(each.sides[VLLMS])
        speed = ours.tokens_per_second.median / vllms.tokens_per_second.median
        p50 = ours.ttft_p50_ms.median - vllms.ttft_p50_ms.median
        p99 = ours.ttft_p99_ms.median - vllms.ttft_p99_ms.median
        front = (
            ours.cpu_in_front_ms_per_1000_tokens.median
            / vllms.cpu_in_front_ms_per_1000_tokens.median
        )
        lines.append(
            f"{each.name}: {speed:.2f}x tokens/s; TTFT p50 {p50:+.1f} ms, p99 {p99:+.1f} ms; "
            f"{front:.2f}x the CPU in front of the engine"
        )
    return lines


def write(folder: Path, comparisons: Sequence[Comparison], machine: Mapping[str, str]) -> None:
    """Write serving.md, serving.json and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.md").write_text(markdown(comparisons, machine), encoding="utf-8")
    workloads = {
        each.name: {side: asdict(Figures.of(rounds)) for side, rounds in each.sides.items()}
        for each in comparisons
    }
    text = json.dumps({"machine": machine, "workloads": workloads}, indent=1) + "\n"
    (folder / f"{NAME}.json").write_text(text, encoding="utf-8")
    for name, plot in _plots(comparisons).items():
        (folder / f"{NAME}_{name}.svg").write_text(plot, encoding="utf-8")


def _plots(comparisons: Sequence[Comparison]) -> dict[str, str]:
    speed: dict[str, dict[str, float]] = {}
    first: dict[str, dict[str, float]] = {}
    cpu: dict[str, dict[str, float]] = {}
    for each in comparisons:
        for side, rounds in each.sides.items():
            figures = Figures.of(rounds)
            speed.setdefault(each.name, {})[side] = figures.tokens_per_second.median
            first.setdefault(each.name, {})[f"{side}, p50"] = figures.ttft_p50_ms.median
            first[each.name][f"{side}, p99"] = figures.ttft_p99_ms.median
            if side != CEILING:
                cpu[f"{each.name}\n{side}"] = figures.cpu_in_front
    return {
        "tokens": bars("Tokens a second", "tokens/s", speed),
        "ttft": bars("Time to the first token", "ms", first),
        "cpu": stacks("CPU time in front of the engine", "ms per 1,000 tokens", cpu),
    }


def speed_table(comparisons: Sequence[Comparison]) -> str:
    rows = [
        ["workload", "side", "tokens/s", "TTFT p50 ms", "TTFT p99 ms", "between tokens p50 ms",
         "between arrivals p99 ms"]
    ]  # fmt: skip
    for each in comparisons:
        for side, rounds in each.sides.items():
            figures = Figures.of(rounds)
            rows.append(
                [
                    each.name,
                    side,
                    shown(figures.tokens_per_second),
                    shown(figures.ttft_p50_ms, 1),
                    shown(figures.ttft_p99_ms, 1),
                    shown(figures.itl_p50_ms, 2) if each.round.is_streaming else "-",
                    shown(figures.gap_p99_ms, 1) if each.round.is_streaming else "-",
                ]
            )
    return table(rows)


def cpu_table(comparisons: Sequence[Comparison]) -> str:
    rows = [["workload", "side", "engine", "in front of it", "of which"]]
    for each in comparisons:
        for side, rounds in each.sides.items():
            figures = Figures.of(rounds)
            parts = ", ".join(f"{name} {value:.1f}" for name, value in figures.cpu_in_front.items())
            rows.append(
                [
                    each.name,
                    side,
                    shown(figures.cpu_ms_per_1000_tokens[ENGINE], 0),
                    shown(figures.cpu_in_front_ms_per_1000_tokens, 0),
                    parts,
                ]
            )
    return table(rows)


def memory_table(comparisons: Sequence[Comparison]) -> str:
    """Show the largest of all workloads by process; the engine's is the same model's everywhere."""
    most: dict[str, dict[str, float]] = {}
    for each in comparisons:
        for side, rounds in each.sides.items():
            for name, mib in Figures.of(rounds).memory_mib.items():
                held = most.setdefault(side, {})
                held[name] = max(held.get(name, 0.0), mib)
    rows = [["side", "process", "most MiB"]]
    rows += [
        [side, name, f"{mib:,.0f}"] for side, held in most.items() for name, mib in held.items()
    ]
    return table(rows)
