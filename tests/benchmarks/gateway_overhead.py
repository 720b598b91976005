"""Penstock beside vLLM's own OpenAI server: same model, engine arguments and client, in one run.

`make bench` calls it. Rounds alternate between the two, so that noise of the machine falls on both;
medians over the rounds are compared. Both engines are loaded all the time; an idle one costs about
2 % of a core. Prints a table and, with --json, writes the figures.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from gpu_workers.demo_model import MODEL_FOLDER
from tests.benchmarks.load_client import RoundResult, Target, run_round
from tests.support.live_stack import run_live_stack
from tests.support.reference_vllm import reference_vllm

PROMPTS = [
    "What is Penstock?",
    "What is a tenant?",
    "How are tokens counted?",
    "What happens when a worker dies?",
    "What is a lease?",
    "Tell me a long story about Penstock.",
]
OURS, VLLMS = "Penstock", "vLLM's own server"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One row of the table. `streams` at once, `requests` in all, `max_tokens` each."""

    streams: int
    requests: int
    max_tokens: int
    rounds: int


WORKLOADS = [
    Workload(streams=1, requests=40, max_tokens=64, rounds=7),
    Workload(streams=64, requests=256, max_tokens=128, rounds=7),
]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Medians over the rounds of one workload against one server."""

    tokens_per_second: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float


async def compare(targets: list[Target], workload: Workload) -> dict[str, Figures]:
    """Alternate rounds between the targets, each round's order the reverse of the last."""
    rounds: dict[str, list[RoundResult]] = {target.name: [] for target in targets}

    def run(target: Target) -> Awaitable[RoundResult]:
        return run_round(
            target,
            streams=workload.streams,
            requests=workload.requests,
            max_tokens=workload.max_tokens,
            prompts=PROMPTS,
        )

    for target in targets:
        await run(target)  # warm-up: templates, grammar caches, connections
    for number in range(workload.rounds):
        for target in targets if number % 2 == 0 else reversed(targets):
            rounds[target.name].append(await run(target))
    return {name: _figures(results) for name, results in rounds.items()}


def _figures(results: list[RoundResult]) -> Figures:
    return Figures(
        tokens_per_second=median(result.tokens_per_second for result in results),
        ttft_p50_ms=median(result.ttft_p50_ms for result in results),
        ttft_p99_ms=median(result.ttft_p99_ms for result in results),
        itl_p50_ms=median(result.itl_p50_ms for result in results),
    )


def _print_table(streams: int, figures: dict[str, Figures]) -> None:
    print(f"\n{streams} stream{'s' if streams > 1 else ''}")
    print(f"  {'':20}{'tokens/s':>10}{'TTFT p50':>12}{'TTFT p99':>12}{'ITL p50':>11}")
    for name, row in figures.items():
        print(
            f"  {name:20}{row.tokens_per_second:>10.0f}{row.ttft_p50_ms:>9.1f} ms"
            f"{row.ttft_p99_ms:>9.1f} ms{row.itl_p50_ms:>8.2f} ms"
        )
    ours, vllms = figures[OURS], figures[VLLMS]
    print(
        f"  ratio: {ours.tokens_per_second / vllms.tokens_per_second:.2f}x tokens/s, "
        f"TTFT p50 {ours.ttft_p50_ms - vllms.ttft_p50_ms:+.1f} ms "
        f"({ours.ttft_p50_ms / vllms.ttft_p50_ms:.2f}x)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    report: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        log_file = Path(folder) / "vllm.log"
        with (
            run_live_stack() as stack,
            reference_vllm(MODEL_FOLDER, stack.model, log_file, max_num_seqs=stack.slots) as url,
        ):
            targets = [
                Target(name=OURS, url=stack.url, model=stack.model, api_key=stack.acme_key),
                Target(name=VLLMS, url=url, model=stack.model),
            ]
            for workload in WORKLOADS:
                figures = asyncio.run(compare(targets, workload))
                _print_table(workload.streams, figures)
                report[str(workload.streams)] = {name: asdict(row) for name, row in figures.items()}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
