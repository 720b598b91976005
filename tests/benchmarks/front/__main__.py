"""`make bench-front`: the most that a core in front of an engine carries, Penstock beside vLLM.

Without arguments it measures the default workloads, in about ten minutes on two cores, and writes
docs/benchmarks; with others it writes var/benchmarks. `--sample` measures nothing, but prints where
the CPU time of Penstock's worker and gateway goes.
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
from tests.benchmarks.front.workloads import Workload, default
from tests.benchmarks.load.generator import RoundRunner, load_generator
from tests.benchmarks.machine import describe
from tests.benchmarks.measured import Comparison, Side, compare, measure, measure_idle
from tests.benchmarks.sides import OURS
from tests.support.places import ROOT

ROUNDS, SLOTS, IDLE_SECONDS = 3, 256, 10.0
MOST_SHOWN = 60


def main() -> None:
    arguments = _arguments()
    workloads = _chosen(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-front-") as folder, load_generator() as load:
        replay = Replay(slots=SLOTS, folder=Path(folder))
        if arguments.sample:
            _sample_all(replay, load, workloads, arguments.rounds)
            return
        machine = describe()
        comparisons: list[Comparison] = []
        with front_sides(replay, load) as sides:
            idle = {side.name: measure_idle(side, arguments.idle_seconds) for side in sides}
            for each in workloads:
                began = time.monotonic()
                replay.set_pace(each.step_ms)
                compared = compare(each.name, sides, each.round, rounds=arguments.rounds)
                comparisons.append(compared)
                (said,) = report.verdicts([compared])
                print(f"{time.monotonic() - began:4.0f} s  {said}", flush=True)
    is_whole = workloads == default() and arguments.rounds >= ROUNDS
    out = arguments.out or ROOT / ("docs" if is_whole else "var") / "benchmarks"
    print("\n" + report.markdown(comparisons, idle, machine))
    report.write(out, comparisons, idle, machine)
    print(f"Written to {out}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", help="only these numbers of streams")
    parser.add_argument("--tokens", type=int, nargs="+", help="of each answer; only these")
    parser.add_argument("--step-ms", type=float, nargs="+", help="only these paces; 0: none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    parser.add_argument("--sample", action="store_true", help="sample Penstock instead")
    parser.add_argument("--out", type=Path, help="the folder of the results")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[Workload]:
    """Return the default workloads or, if streams, tokens and pace are all given, any of these."""
    streams, tokens, steps = arguments.streams, arguments.tokens, arguments.step_ms
    if streams and tokens and steps:
        return [
            Workload(streams=each, tokens=count, step_ms=step_ms)
            for each in streams
            for count in tokens
            for step_ms in steps
        ]
    chosen = [
        each
        for each in default()
        if each.streams in (streams or [each.streams])
        and each.tokens in (tokens or [each.tokens])
        and each.step_ms in (steps or [each.step_ms])
    ]
    if not chosen:
        raise SystemExit("None of the default workloads is like that; give all three of them.")
    return chosen


def _sample_all(replay: Replay, load: RoundRunner, workloads: list[Workload], rounds: int) -> None:
    sampling = Sampling(folder=replay.folder)
    with front_sides(replay, load, sampling) as sides:
        ours = next(side for side in sides if side.name == OURS)
        for each in workloads:
            replay.set_pace(each.step_ms)
            _sample(ours, each, sampling, rounds)


def _sample(side: Side, workload: Workload, sampling: Sampling, rounds: int) -> None:
    """Print where the CPU time of some rounds goes, in microseconds a token and a request."""
    side.run(workload.round(0))
    for pid in sampling.pids.values():
        os.kill(pid, signal.SIGUSR1)
    measured = [measure(side, workload.round(number)) for number in range(1, rounds + 1)]
    for pid in sampling.pids.values():
        os.kill(pid, signal.SIGUSR2)
    tokens = sum(each.result.tokens for each in measured)
    requests = sum(len(each.result.samples) for each in measured)
    for program in sampling.pids:
        file = sampling.file(program)
        _wait_for(file)
        seconds = sum(each.cpu[program] for each in measured)
        print(f"\n{program}: {workload.name}, {tokens} tokens, {requests} requests")
        print(f"  {1e6 * seconds / tokens:.1f} us a token, {1e3 * seconds / requests:.2f} ms a")
        print(f"  {'alone us/token':>16}{'with calls':>12}{'with calls us/request':>23}  function")
        for cost in costs(file)[:MOST_SHOWN]:
            alone, total = 1e6 * cost.alone * seconds, 1e6 * cost.total * seconds
            print(
                f"  {alone / tokens:>16.2f}{total / tokens:>12.2f}{total / requests:>23.0f}"
                f"  {cost.function}"
            )
        name = f"{program}-{workload.streams}-{workload.tokens}-{workload.step_ms:g}.samples"
        kept = ROOT / "var" / "benchmarks" / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(file.read_bytes())
        file.unlink()
    print("The stacks are in var/benchmarks.")


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + 30
    while not file.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no samples were written to {file}")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
