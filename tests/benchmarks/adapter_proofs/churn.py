"""Streams while adapters come and go, on a real worker; about six minutes.

    python -m tests.benchmarks.adapter_proofs.churn [--rounds 3] [--way requests] [--out FILE]
        [--streams 64 16] [--newcomers 200] [--tokens 640]

Rounds with and without take turns. Without further arguments both ways (`churn.Way`) are measured
and docs/benchmarks/adapter_churn.md is written. Fails where a stream is not what it is alone, where
a token is lost, or where the p99 between tokens is more than twice of without.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from redis.asyncio import Redis

from inference.redis_functions import LIBRARIES, library_text
from tests.benchmarks.figures import table
from tests.benchmarks.load.rounds import quantile
from tests.benchmarks.machine import describe
from tests.support.greedy_answers.compared import NEAR_TIE, Answer, Verdict, compare, counted
from tests.support.places import ROOT
from tests.support.servers import servers
from tests.support.workers.adapters.churn import (
    NEWCOMER_TOKENS,
    NEWCOMERS_AT_ONCE,
    ChurnedWorker,
    Round,
    Size,
    Way,
    churned_worker,
)

ROUNDS: Final = 3
MOST_P99: Final = 2.0
REPORT: Final = ROOT / "docs" / "benchmarks" / "adapter_churn.md"
SIZES: Final = {
    Way.REQUESTS: Size(),
    Way.PREFETCHES: Size(stream_adapters=Size.slots),
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The rounds of one way, and what the streams say alone."""

    way: Way
    size: Size
    alone: list[Answer]
    without: list[Round] = field(default_factory=list)
    beside: list[Round] = field(default_factory=list)

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Return how the streams of all rounds compare with the same ones alone."""
        return counted(
            compare(stream.answer, alone)
            for each in [*self.without, *self.beside]
            for stream, alone in zip(each.streams, self.alone, strict=True)
        )

    @property
    def broken(self) -> int:
        """Return how many requests lost a token, or their end."""
        return sum(
            not stream.is_whole
            for each in [*self.without, *self.beside]
            for stream in [*each.streams, *each.newcomers]
        )

    @property
    def unlike_before(self) -> int:
        """Return how many newcomers did not answer as in the first round."""
        first, *others = [[stream.token_ids for stream in each.newcomers] for each in self.beside]
        return sum(one != other for each in others for one, other in zip(first, each, strict=True))

    def quantiles(self, rounds: Sequence[Round], percent: int) -> list[float]:
        """Return a quantile, in ms, of the time between tokens, by round: all rounds over the
        tokens during which adapters came and went."""
        first = min(each.first for each in self.beside)
        last = max(each.last for each in self.beside)
        return [quantile(each.gaps_ms(first, last), percent) for each in rounds]

    @property
    def p99_ratio(self) -> float:
        return median(self.quantiles(self.beside, 99)) / median(self.quantiles(self.without, 99))

    @property
    def holds(self) -> bool:
        return (
            self.verdicts[Verdict.DIFFERENT] == self.broken == self.unlike_before == 0
            and self.p99_ratio <= MOST_P99
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--way", type=Way, choices=list(Way), nargs="+", default=list(Way))
    parser.add_argument("--streams", type=int, nargs=2, metavar=("BASE", "ADAPTER"))
    parser.add_argument("--newcomers", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    is_whole = len(sys.argv) == 1
    machine = describe()
    measured = []
    for way in arguments.way:
        measured.append(asyncio.run(measure(way, _size(way, arguments), arguments.rounds)))
        print("\n".join(_section(measured[-1])), flush=True)
    text = report(measured, machine)
    if out := arguments.out or (REPORT if is_whole else None):
        out.write_text(text)
        print(f"Written to {out}.")
    if not all(each.holds for each in measured):
        sys.exit("Adapters that come and go are noticed.")


def _size(way: Way, arguments: argparse.Namespace) -> Size:
    usual = SIZES[way]
    base, adapter = arguments.streams or (usual.base_streams, usual.adapter_streams)
    return Size(
        base_streams=base,
        adapter_streams=adapter,
        stream_adapters=usual.stream_adapters,
        newcomers=arguments.newcomers or usual.newcomers,
        tokens=arguments.tokens or usual.tokens,
    )


async def measure(way: Way, size: Size, rounds: int) -> Measured:
    """Run so many rounds with and without in turns, each turn in the reverse order of the last."""
    redis = Redis.from_url(servers().dispatch_redis.url, socket_timeout=None)
    await redis.flushall()
    for library in LIBRARIES:
        await redis.function_load(library_text(library), replace=True)
    with tempfile.TemporaryDirectory(prefix="penstock-churn-") as folder:
        url = servers().worker_redis_url("sim")
        async with churned_worker(redis, url, Path(folder), size) as worker:
            measured = Measured(way=way, size=size, alone=await worker.detailed())
            for number in range(rounds):
                await _turn(worker, measured, reverses=number % 2 == 1)
    await redis.aclose()
    return measured


async def _turn(worker: ChurnedWorker, measured: Measured, *, reverses: bool) -> None:
    if reverses:
        measured.beside.append(await worker.churned(measured.way))
    measured.without.append(await worker.undisturbed())
    if not reverses:
        measured.beside.append(await worker.churned(measured.way))


def report(measured: Sequence[Measured], machine: dict[str, str]) -> str:
    """Return the figures as a page of Markdown."""
    parts = [part for each in measured for part in _section(each)]
    return "\n".join(
        [
            "# Streams while adapters come and go",
            "",
            "Written by `python -m tests.benchmarks.adapter_proofs.churn`: a worker with vLLM in"
            " float32, streams of the base and of adapters, and adapters that come (their source,"
            " a fetch of the sealed file, the cache, a load) and go (from the engine, the disk and"
            " the sources). Each stream is compared, token by token, with the same one while no"
            " adapter comes or goes. The time between tokens is that between two arrivals of a"
            " stream in its gateway, in all rounds over the tokens during which adapters came and"
            " went; rounds with and without take turns.",
            "",
            *parts,
            table([["machine", ""], *([name, value] for name, value in machine.items())]),
            "",
        ]
    )


def _section(measured: Measured) -> list[str]:
    size, verdicts = measured.size, measured.verdicts
    how = (
        f"each with a request of {NEWCOMER_TOKENS} tokens"
        if measured.way is Way.REQUESTS
        else "prefetched, while the streams have every slot: each load takes one that is in use"
    )
    rows = [["round", *(f"p{percent} without" for percent in (50, 99))]]
    rows[0] += [f"p{percent} beside" for percent in (50, 99)] + ["adapters a second"]
    columns = [
        measured.quantiles(rounds, percent)
        for rounds in (measured.without, measured.beside)
        for percent in (50, 99)
    ]
    rates = [_rate(each, size.newcomers) for each in measured.beside]
    for number, row in enumerate(zip(*columns, rates, strict=True), start=1):
        rows.append([str(number), *(f"{value:.1f}" for value in row)])
    rows.append(["median", *(f"{median(column):.1f}" for column in [*columns, rates])])
    streams = size.base_streams + size.adapter_streams
    return [
        f"## They come with {measured.way.value}",
        "",
        f"{size.base_streams} streams of the base and {size.adapter_streams} of"
        f" {size.stream_adapters} adapters, {size.tokens} tokens each; {size.slots} slots,"
        f" {size.in_memory} in memory. In each round {size.newcomers} adapters come,"
        f" {NEWCOMERS_AT_ONCE} at once, {how}.",
        "",
        f"- Streams: {streams} in each of {len(measured.without) + len(measured.beside)} rounds,"
        f" {verdicts[Verdict.EQUAL]} equal to themselves alone, {verdicts[Verdict.NEAR_TIE]} apart"
        f" at a near-tie (less than {NEAR_TIE:g}), {verdicts[Verdict.DIFFERENT]} different.",
        f"- Requests that lost a token or did not complete: {measured.broken}.",
        *(
            [f"- Newcomers that answered unlike the round before: {measured.unlike_before}."]
            if measured.way is Way.REQUESTS
            else []
        ),
        f"- Time between tokens, p99: {measured.p99_ratio:.2f} times that of without"
        f" (at most {MOST_P99:g}).",
        "",
        "Milliseconds between tokens:",
        "",
        table(rows),
        "",
    ]


def _rate(round_: Round, newcomers: int) -> float:
    """Return how many adapters came and went a second."""
    share = (round_.last - round_.first) / len(round_.streams[0].token_ids)
    return newcomers / (share * round_.seconds)


if __name__ == "__main__":
    main()
