"""`make bench`: Penstock with all on, vLLM's own server and AsyncLLM in process, in one run.

Same model, engine arguments and load generator; rounds take turns, so that noise of the machine
falls on all alike, and never two sides are under load at once. Without arguments it measures the
default workloads, in about half an hour on two cores, and writes docs/benchmarks; with a part of
them it writes var/benchmarks. `--all` runs the whole matrix, for hours. What adapters cost is a
part of its own, with other sides: `--part adapters`.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.benchmarks.load.generator import load_generator
from tests.benchmarks.load.rounds import Door
from tests.benchmarks.machine import describe
from tests.benchmarks.measured import Comparison, compare
from tests.benchmarks.serving import adapter_report, adapters, report
from tests.benchmarks.serving.servers import CEILING, running_sides
from tests.benchmarks.serving.workloads import (
    STREAMS,
    Cores,
    Prompts,
    Workload,
    by_cores,
    default,
    matrix,
)
from tests.benchmarks.sides import OURS, VLLMS
from tests.support.places import ROOT

ROUNDS = 5
PARTS = ("serving", "adapters")
SIDES = {"penstock": OURS, "vllm": VLLMS, "asyncllm": CEILING}


def main() -> None:
    arguments = _arguments()
    if "serving" in arguments.part:
        _measure_serving(arguments)
    if "adapters" in arguments.part:
        _measure_adapters(arguments)


def _measure_serving(arguments: argparse.Namespace) -> None:
    workloads = _chosen(arguments)
    names = [SIDES[name] for name in arguments.sides]
    is_whole = workloads == default() and len(names) == len(SIDES) and arguments.rounds >= ROUNDS
    out = arguments.out or ROOT / ("docs" if is_whole else "var") / "benchmarks"
    machine = describe()
    comparisons: list[Comparison] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, load_generator() as load:
        for cores, chosen in by_cores(workloads):
            with running_sides(cores, names, load, Path(folder)) as sides:
                for each in chosen:
                    began = time.monotonic()
                    compared = compare(each.name, sides, each.round, rounds=arguments.rounds)
                    comparisons.append(compared)
                    seconds = time.monotonic() - began
                    said = report.ratios([compared]) or [each.name]
                    print(f"{seconds:4.0f} s  {said[0]}", flush=True)
    print("\n" + report.markdown(comparisons, machine))
    report.write(out, comparisons, machine)
    print(f"Written to {out}.")


def _measure_adapters(arguments: argparse.Namespace) -> None:
    workloads = [
        each
        for each in adapters.default()
        if each.streams in (arguments.streams or STREAMS)
        and each.traffic in (arguments.traffic or adapters.Traffic)
    ]
    whole = list(adapters.by_engine(adapters.default()))
    with load_generator() as load:
        for chosen in adapters.by_engine(workloads):
            is_whole = chosen in whole and arguments.rounds >= ROUNDS
            out = arguments.out or ROOT / ("docs" if is_whole else "var") / "benchmarks"
            machine = describe()
            compared: list[tuple[adapters.AdapterWorkload, Comparison]] = []
            with (
                tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
                adapters.adapter_sides(chosen, load, Path(folder)) as sides,
            ):
                for each in chosen:
                    comparison = compare(each.name, sides, each.round, rounds=arguments.rounds)
                    compared.append((each, comparison))
                    print(*adapter_report.ratios([compared[-1]]), sep="\n", flush=True)
            print("\n" + adapter_report.markdown(compared, machine))
            print(f"Written to {adapter_report.write(out, compared, machine)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--traffic", nargs="+", choices=list(adapters.Traffic), help="of the part with adapters"
    )
    parser.add_argument("--all", action="store_true", help="the whole matrix, not the default part")
    parser.add_argument("--streams", type=int, nargs="+", choices=STREAMS)
    parser.add_argument("--door", nargs="+", choices=list(Door))
    parser.add_argument("--prompts", nargs="+", choices=list(Prompts))
    parser.add_argument("--cores", nargs="+", choices=list(Cores))
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="the folder of the results")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[Workload]:
    """Return the workloads that the filters let through. Raises `SystemExit` if there is none."""
    chosen = [
        each
        for each in (matrix() if arguments.all else default())
        if each.streams in (arguments.streams or STREAMS)
        and each.door in (arguments.door or Door)
        and each.prompts in (arguments.prompts or Prompts)
        and each.cores in (arguments.cores or Cores)
    ]
    if not chosen:
        raise SystemExit("None of the default workloads is like that; add --all for the others.")
    return chosen


if __name__ == "__main__":
    main()
