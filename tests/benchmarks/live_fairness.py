"""One tenant floods the real stack; what does another notice? `make bench-live-fairness`.

A victim asks 4 times a second for 32 tokens, on schedule whatever becomes of the answers, first of
an idle pool, then while another tenant keeps 256 streams of 256 tokens open in closed loop. The
phases take turns. The engine has 64 slots. Both tenants have the same tier, so that neither weight
nor class is what decides; with --tiers the flooder has the higher one.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

from tests.benchmarks.load.client import one_stream
from tests.benchmarks.load.rounds import LoadError, Target
from tests.support.live_stack import run_live_stack

PROMPTS = ["What is Penstock?", "What is a tenant?", "What is a lease?"]
FLOODING_STREAMS, FLOODING_TOKENS = 256, 256
VICTIM_TOKENS, REQUESTS_PER_SECOND = 32, 4
SECONDS_TO_FILL, SECONDS_TO_EMPTY = 5.0, 2.0
SLOTS = 64


@asynccontextmanager
async def flood(target: Target) -> AsyncIterator[None]:
    """Every stream that ends is followed by another; all are hung up on when the block ends."""

    async def stream(number: int) -> None:
        while True:
            try:
                await one_stream(target, PROMPTS[number % len(PROMPTS)], FLOODING_TOKENS)
            except LoadError:
                await asyncio.sleep(1)  # it waited as long as its tier allows

    streams = [asyncio.create_task(stream(number)) for number in range(FLOODING_STREAMS)]
    try:
        await asyncio.sleep(SECONDS_TO_FILL)
        yield
    finally:
        for each in streams:
            each.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await asyncio.sleep(SECONDS_TO_EMPTY)


async def ask_on_schedule(target: Target, samples: int) -> list[float]:
    """Times to the first token, in ms."""
    began = time.perf_counter()
    asked = []
    for number in range(samples):
        await asyncio.sleep(began + number / REQUESTS_PER_SECOND - time.perf_counter())
        prompt = PROMPTS[number % len(PROMPTS)]
        asked.append(asyncio.create_task(one_stream(target, prompt, VICTIM_TOKENS)))
    return [(await each).ttft_ms for each in asked]


async def measure(
    victim: Target, flooder: Target, *, rounds: int, samples: int
) -> dict[str, float]:
    alone: list[float] = []
    flooded: list[float] = []
    await ask_on_schedule(victim, 8)
    for _ in range(rounds):
        alone += await ask_on_schedule(victim, samples)
        async with flood(flooder):
            flooded += await ask_on_schedule(victim, samples)
    figures = {"samples": float(len(flooded))}
    for name, values in (("alone", alone), ("flooded", flooded)):
        figures[f"{name}_p50_ms"] = median(values)
        figures[f"{name}_p99_ms"] = quantiles(values, n=100, method="inclusive")[98]
    figures["p99_ratio"] = figures["flooded_p99_ms"] / figures["alone_p99_ms"]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=340, help="of the victim, a phase and round")
    parser.add_argument("--tiers", action="store_true", help="Acme premium, Globex standard")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    with run_live_stack(PENSTOCK_MAX_NUM_SEQS=str(SLOTS)) as stack:
        if not arguments.tiers:
            stack.manage("set_tier", "Globex", "premium")
        victim = Target(name="victim", url=stack.url, model=stack.model, api_key=stack.globex_key)
        flooder = Target(name="flooder", url=stack.url, model=stack.model, api_key=stack.acme_key)
        figures = asyncio.run(
            measure(victim, flooder, rounds=arguments.rounds, samples=arguments.samples)
        )
    print(f"the victim's time to first token, {figures['samples']:.0f} samples")
    for name in ("alone", "flooded"):
        p50, p99 = figures[f"{name}_p50_ms"], figures[f"{name}_p99_ms"]
        print(f"  {name:8} p50 {p50:7.1f} ms   p99 {p99:7.1f} ms")
    print(f"  ratio of the p99: {figures['p99_ratio']:.1f}x (bar: 5x)")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
