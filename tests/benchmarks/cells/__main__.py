"""`make bench-cells`: every workload under every policy with 1, 10, 100 and 1,000 workers."""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.benchmarks.cells.measure import Figures, measure
from tests.benchmarks.cells.placement import POLICIES
from tests.benchmarks.cells.simulate import Simulation
from tests.benchmarks.cells.workloads import requests_per_second, workloads
from tests.benchmarks.plot import bars
from tests.support.places import ROOT

# Workers, and the cells that they are in.
POOLS: Final = ((1, 1), (10, 2), (100, 4), (100, 10), (1_000, 10), (1_000, 40))
REQUESTS, SHORTEST_SECONDS, LONGEST_SECONDS = 100_000, 24.0, 240.0
HEAD: Final = (
    "workload", "policy", "wait p50, ms", "wait p99, ms", "share error", "Jain", "stolen",
    "at home", "slots in use",
)  # fmt: skip

Results = dict[str, dict[str, Figures]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, nargs="*", help="numbers of workers")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "scale")
    arguments = parser.parse_args()
    found: dict[str, Results] = {}
    began = time.monotonic()
    for workers, cells in POOLS:
        if arguments.only and workers not in arguments.only:
            continue
        name = f"{workers:,} workers in {cells} cell{'s' if cells > 1 else ''}"
        found[name] = of_pool(workers, cells)
        print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)
    print("\n" + markdown(found))
    if not arguments.only:
        write(arguments.out, found)


def of_pool(workers: int, cells: int) -> Results:
    """By workload and policy."""
    seconds = REQUESTS / requests_per_second(workers)
    seconds = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, seconds))
    return {
        workload.name: {
            policy.name: measure(
                Simulation(
                    workload, policy, workers=workers, cells=cells, seconds=seconds
                ).execute()
            )
            for policy in POLICIES
            if cells > 1 or policy.is_whole
        }
        for workload in workloads(workers)
    }


def markdown(found: dict[str, Results]) -> str:
    parts = ["<!-- Written by `make bench-cells`; see docs/scale.md. -->"]
    for name, results in found.items():
        rows = [
            (workload, policy, *_cells(figures))
            for workload, policies in results.items()
            for policy, figures in policies.items()
        ]
        parts += [f"## {name}", _table([HEAD, *rows])]
    return "\n\n".join(parts) + "\n"


def write(folder: Path, found: dict[str, Results]) -> None:
    """cells.md, cells.json and a plot of the victims' waits."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cells.md").write_text(markdown(found), encoding="utf-8")
    whole = {
        pool: {
            workload: {policy: asdict(figures) for policy, figures in policies.items()}
            for workload, policies in results.items()
        }
        for pool, results in found.items()
    }
    (folder / "cells.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    waits = {
        pool.replace(" workers in ", " / "): {
            policy: max(0.1, figures.wait_p99_ms)
            for policy, figures in results["flood of one"].items()
            if figures.wait_p99_ms is not None
        }
        for pool, results in found.items()
    }
    plot = bars("Wait p99 of tenants within their share, under a flood", "ms", waits)
    (folder / "cells_wait.svg").write_text(plot, encoding="utf-8")


def _cells(figures: Figures) -> tuple[str, ...]:
    return (
        _number(figures.wait_p50_ms),
        _number(figures.wait_p99_ms),
        "-" if figures.share_error is None else f"{figures.share_error:.1%}",
        "-" if figures.jain is None else f"{figures.jain:.4f}",
        f"{figures.stolen:.1%}",
        f"{figures.at_home:.0%}",
        f"{figures.occupancy:.1%}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
