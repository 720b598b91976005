"""What adapters cost: ratios beside their bars, tables and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.figures import Figures
from tests.benchmarks.measured import Comparison
from tests.benchmarks.serving.adapters import BASE, RESIDENTS, WITHOUT, AdapterWorkload, Traffic
from tests.benchmarks.serving.report import cpu_table, memory_table, speed_table
from tests.benchmarks.sides import OURS, VLLMS

NAME, SIM_NAME = "adapters", "adapters-simulated"
# The bars: of base traffic, beside an engine without adapters; of mixed traffic, beside vLLM's own
# server; and of residents' TTFT p99, beside the base's.
LEAST_OF_BASE, LEAST_OF_VLLMS, MOST_OF_BASE_TTFT = 0.9, 0.95, 1.1

Compared = Sequence[tuple[AdapterWorkload, Comparison]]


def markdown(compared: Compared, machine: Mapping[str, str]) -> str:
    comparisons = [comparison for _, comparison in compared]
    return (
        "\n\n".join(
            [
                "<!-- Written by `make bench`; README.md says how to read it. -->",
                "# What adapters cost",
                "; ".join(f"{name} {value}" for name, value in machine.items()) + ".",
                "\n".join(f"- {line}" for line in ratios(compared)),
                "Median (lowest to highest) over the rounds, which took turns.",
                speed_table(comparisons),
                "## CPU, ms per 1,000 tokens",
                cpu_table(comparisons),
                "## Memory, MiB",
                memory_table(comparisons),
            ]
        )
        + "\n"
    )


def ratios(compared: Compared) -> list[str]:
    lines = []
    for workload, comparison in compared:
        found = {side: Figures.of(rounds) for side, rounds in comparison.sides.items()}
        if workload.traffic is Traffic.SIM:
            p99 = found[RESIDENTS].ttft_p99_ms.median / found[BASE].ttft_p99_ms.median
            said = f"residents' TTFT p99 {p99:.2f}x of the base's (bar {MOST_OF_BASE_TTFT})"
            lines.append(f"{comparison.name}: {said}")
            continue
        is_base = workload.traffic is Traffic.BASE
        other = WITHOUT if is_base else VLLMS
        bar = LEAST_OF_BASE if is_base else LEAST_OF_VLLMS
        speed = found[OURS].tokens_per_second.median / found[other].tokens_per_second.median
        p50 = found[OURS].ttft_p50_ms.median - found[other].ttft_p50_ms.median
        p99 = found[OURS].ttft_p99_ms.median - found[other].ttft_p99_ms.median
        lines.append(
            f"{comparison.name}, beside {other}: {speed:.2f}x tokens/s (bar {bar}); "
            f"TTFT p50 {p50:+.1f} ms, p99 {p99:+.1f} ms"
        )
    return lines


def write(folder: Path, compared: Compared, machine: Mapping[str, str]) -> Path:
    """Write the page of an engine, and its figures as JSON; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    name = SIM_NAME if compared[0][0].traffic is Traffic.SIM else NAME
    page = folder / f"{name}.md"
    page.write_text(markdown(compared, machine), encoding="utf-8")
    workloads = {
        comparison.name: {
            side: asdict(Figures.of(rounds)) for side, rounds in comparison.sides.items()
        }
        for _, comparison in compared
    }
    text = json.dumps({"machine": machine, "workloads": workloads}, indent=1) + "\n"
    page.with_suffix(".json").write_text(text, encoding="utf-8")
    return page
