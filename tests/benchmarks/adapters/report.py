"""The latencies of adapters as a page."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Final

from tests.benchmarks.adapters.latency import Latencies
from tests.benchmarks.figures import table
from tests.benchmarks.load.rounds import quantile

NAME: Final = "adapter-latency"
# The bars: seconds from an upload to its first token, and what cold adds to a first token, in ms.
MOST_SECONDS, MOST_FROM_DISK_MS, MOST_FROM_STORE_MS = 5.0, 100.0, 500.0
STAGES: Final = ("upload", "queue", "validation", "publication", "first_token")


def line(name: str, found: Latencies) -> str:
    totals = [each.total for each in found.stages]
    return (
        f"{name}: upload to first token p50 {median(totals) / 1000:.2f} s, "
        f"p99 {quantile(totals, 99) / 1000:.2f} s; "
        f"cold {found.from_disk_ms:+.0f} ms from disk, {found.from_store_ms:+.0f} ms from the store"
    )


def markdown(found: Mapping[str, Latencies], machine: Mapping[str, str]) -> str:
    return (
        "\n\n".join(
            [
                "<!-- Written by `make bench-adapters`; README.md says how to read it. -->",
                "# From an upload to its first token",
                "; ".join(f"{name} {value}" for name, value in machine.items()) + ".",
                _totals(found),
                "## Where the time goes",
                "Medians, in ms. What is waited for is asked for each 50 ms.",
                _stages(found),
                "As control plane and workers measure themselves, medians in ms:",
                _said(found),
                "## Cold adapters",
                "Time to the first token, ms; the bars are the medians above a resident's: "
                f"{MOST_FROM_DISK_MS:.0f} from disk, {MOST_FROM_STORE_MS:.0f} from the store.",
                _cold(found),
            ]
        )
        + "\n"
    )


def write(folder: Path, found: Mapping[str, Latencies], machine: Mapping[str, str]) -> Path:
    """Write the page and all it was made of; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{NAME}.md"
    page.write_text(markdown(found, machine), encoding="utf-8")
    pools = {name: asdict(latencies) for name, latencies in found.items()}
    text = json.dumps({"machine": machine, "pools": pools}, indent=1) + "\n"
    page.with_suffix(".json").write_text(text, encoding="utf-8")
    return page


def _totals(found: Mapping[str, Latencies]) -> str:
    rows = [["pool", "uploads", "workers that answered", "p50 s", "p99 s", f"bar {MOST_SECONDS} s"]]
    for name, latencies in found.items():
        totals = [each.total / 1000 for each in latencies.stages]
        p99 = quantile(totals, 99)
        rows.append(
            [
                name,
                str(len(totals)),
                str(latencies.workers),
                f"{median(totals):.2f}",
                f"{p99:.2f}",
                _met(p99 < MOST_SECONDS),
            ]
        )
    return table(rows)


def _stages(found: Mapping[str, Latencies]) -> str:
    rows = [["pool", *(stage.replace("_", " ") for stage in STAGES)]]
    for name, latencies in found.items():
        rows.append(
            [name] + [_shown(getattr(each, stage) for each in latencies.stages) for stage in STAGES]
        )
    return table(rows)


def _said(found: Mapping[str, Latencies]) -> str:
    rows = [["pool", "jail", "fetch, open and load", "open and load"]]
    for name, latencies in found.items():
        said = (
            latencies.jail_seconds,
            latencies.fetch_and_load_seconds,
            latencies.load_seconds,
        )
        rows.append([name, *(_shown(1000 * each for each in seconds) for seconds in said)])
    return table(rows)


def _cold(found: Mapping[str, Latencies]) -> str:
    rows = [["pool", "adapter", "p50", "p99", "more than a resident", "bar"]]
    for name, each in found.items():
        rows.append([name, "in a slot", *_p50_p99(each.resident), "", ""])
        for where, cold, more, bar in (
            ("on disk", each.disk, each.from_disk_ms, MOST_FROM_DISK_MS),
            ("in the store", each.store, each.from_store_ms, MOST_FROM_STORE_MS),
        ):
            rows.append([name, where, *_p50_p99(cold), f"{more:+.0f}", _met(more <= bar)])
    return table(rows)


def _p50_p99(values: list[float]) -> tuple[str, str]:
    return f"{quantile(values, 50):.0f}", f"{quantile(values, 99):.0f}"


def _shown(values: Iterable[float]) -> str:
    every = list(values)
    return f"{median(every):.0f}" if every else "-"


def _met(is_met: bool) -> str:
    return "met" if is_met else "**missed**"
