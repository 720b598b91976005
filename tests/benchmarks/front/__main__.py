"""`make bench-front`: the most that a core in front of an engine carries, Penstock beside vLLM.

ARGS="--streams 64 --tokens 64 512 --rounds 3 --step-ms 20 --sample" run a part, at a pace, or write
where the CPU time of worker and gateway goes. Results go to docs/benchmarks if all of the default
workloads were run, else to var/benchmarks.
"""

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

from tests.benchmarks.front import report
from tests.benchmarks.front.sampler import costs
from tests.benchmarks.front.sides import Replay, Sampling, front_sides
from tests.benchmarks.load.generator import load_generator
from tests.benchmarks.load.prompts import SHORT
from tests.benchmarks.load.rounds import Round
from tests.benchmarks.machine import describe
from tests.benchmarks.measured import Comparison, Side, compare, measure
from tests.benchmarks.sides import OURS
from tests.support.places import ROOT

STREAMS, TOKENS, ROUNDS, SLOTS = [1, 64, 256], [64, 512], 3, 256
# Tokens of one round, so that each takes a few seconds on two slow cores.
TOKENS_A_ROUND = {1: 2_560, 64: 32_768, 256: 65_536}
MOST_SHOWN = 45


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="of each answer")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--step-ms", type=float, default=0.0, help="least time between steps")
    parser.add_argument("--sample", action="store_true", help="sample Penstock instead")
    parser.add_argument("--out", type=Path, help="the folder of the results")
    arguments = parser.parse_args()
    is_whole = (arguments.streams, arguments.tokens, arguments.step_ms) == (STREAMS, TOKENS, 0.0)
    is_whole = is_whole and arguments.rounds >= ROUNDS
    out = arguments.out or ROOT / ("docs" if is_whole else "var") / "benchmarks"
    machine = describe()
    replay = Replay(slots=SLOTS, step_ms=arguments.step_ms)
    with tempfile.TemporaryDirectory(prefix="penstock-front-") as folder, load_generator() as load:
        if arguments.sample:
            sampling = Sampling(folder=Path(folder))
            with front_sides(replay, load, Path(folder), sampling) as sides:
                ours = next(side for side in sides if side.name == OURS)
                for round_ in _rounds(arguments.streams, arguments.tokens):
                    _sample(ours, round_, sampling, rounds=arguments.rounds)
            return
        comparisons: list[Comparison] = []
        with front_sides(replay, load, Path(folder)) as sides:
            for round_ in _rounds(arguments.streams, arguments.tokens):
                began = time.monotonic()
                comparisons.append(_compare(sides, round_, arguments.rounds))
                (said,) = report.verdicts(comparisons[-1:])
                print(f"{time.monotonic() - began:4.0f} s  {said}", flush=True)
    print("\n" + report.markdown(comparisons, machine))
    report.write(out, comparisons, machine)
    print(f"Written to {out}.")


def _rounds(streams: list[int], tokens: list[int]) -> list[Round]:
    return [_round(each, max_tokens) for each in streams for max_tokens in tokens]


def _round(streams: int, max_tokens: int) -> Round:
    budget = TOKENS_A_ROUND.get(streams, 512 * streams)
    requests = max(streams, budget // max_tokens)
    return Round(streams=streams, requests=requests, max_tokens=max_tokens, prompts=SHORT)


def _compare(sides: list[Side], round_: Round, rounds: int) -> Comparison:
    streams = f"{round_.streams} stream{'s' if round_.streams > 1 else ''}"
    name = f"{streams}, {round_.max_tokens} tokens"
    return compare(name, sides, lambda _: round_, rounds=rounds)


def _sample(side: Side, round_: Round, sampling: Sampling, *, rounds: int) -> None:
    """Print where the CPU time of some rounds goes, in microseconds a token and a request."""
    side.run(round_)
    for pid in sampling.pids.values():
        os.kill(pid, signal.SIGUSR1)
    measured = [measure(side, round_) for _ in range(rounds)]
    for pid in sampling.pids.values():
        os.kill(pid, signal.SIGUSR2)
    tokens = sum(each.result.tokens for each in measured)
    requests = rounds * round_.requests
    for program in sampling.pids:
        file = sampling.file(program)
        _wait_for(file)
        seconds = sum(each.cpu[program] for each in measured)
        print(f"\n{program}: {round_.streams} streams, {round_.max_tokens} tokens a request")
        print(f"  {1e6 * seconds / tokens:.1f} us a token, {1e3 * seconds / requests:.2f} ms a")
        print(f"  {'alone us/token':>16}{'with calls':>12}{'alone us/request':>18}  function")
        for cost in costs(file)[:MOST_SHOWN]:
            alone, total = 1e6 * cost.alone * seconds, 1e6 * cost.total * seconds
            print(
                f"  {alone / tokens:>16.2f}{total / tokens:>12.2f}{alone / requests:>18.0f}"
                f"  {cost.function}"
            )
        kept = (
            ROOT / "var" / "benchmarks" / f"{program}-{round_.streams}-{round_.max_tokens}.samples"
        )
        kept.parent.mkdir(parents=True, exist_ok=True)
        file.rename(kept)


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + 30
    while not file.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no samples were written to {file}")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
