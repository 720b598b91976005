"""`make bench-gateway`: requests, events, idle websockets and memory of one gateway process.

It takes about two minutes on two cores; --requests 200000 sends so many more in a row and reports
the gateway's memory meanwhile. Prints Markdown, and writes it where --out says.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.gateway import report
from tests.benchmarks.gateway.idle_websockets import idle_websockets
from tests.benchmarks.gateway.workloads import MOST_STREAMS, default
from tests.benchmarks.load.generator import RoundRunner, load_generator
from tests.benchmarks.load.prompts import SHORT
from tests.benchmarks.load.rounds import Round
from tests.benchmarks.machine import describe
from tests.benchmarks.measured import Side, measure, measure_idle
from tests.benchmarks.processes import memory_bytes
from tests.benchmarks.sides import penstock
from tests.support.live_stack import run_live_stack
from tests.support.stack_addresses import LiveStack

ROUNDS, WEBSOCKETS, IDLE_SECONDS = 3, 5_000, 10.0
STEP_MS = 5.0
# Of the rounds between which memory is read.
REQUESTS_A_READING = 10_000
GATEWAY = "gateway"
# So that what is measured is not what a tier allows.
_NO_LIMIT = """
from tenants.isolation.scoping import operator_scope
from tenants.models import Tier
with operator_scope("benchmark"):
    tier = Tier.objects.get(name="premium")
    tier.requests_per_minute = tier.max_concurrent_requests = 10**8
    tier.save()
"""


def main() -> None:
    arguments = _arguments()
    machine = describe()
    with _stack() as stack, load_generator() as load:
        side = penstock(stack, load)
        idle_seconds = arguments.idle_seconds
        print("idle:", report.shares(measure_idle(side, idle_seconds)), flush=True)
        measured = []
        for workload in default(arguments.only or ""):
            side.run(workload.round(0))
            rounds = [measure(side, workload.round(n)) for n in range(1, arguments.rounds + 1)]
            measured.append(report.Measured(workload=workload, rounds=rounds))
            print(report.line(measured[-1]), flush=True)
        sections = [report.capacity(measured), report.by_process(measured)] if measured else []
        if arguments.websockets:
            count = arguments.websockets
            sections.append(_measure_websockets(stack, side, count, idle_seconds))
        if arguments.requests:
            sections.append(report.memory(_memory_over(side, load, arguments.requests)))
    text = report.markdown(machine, sections)
    print("\n" + text)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="the workloads whose name holds this; - for none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--websockets", type=int, default=WEBSOCKETS, help="0: none")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    parser.add_argument("--requests", type=int, default=0, help="over which memory is read")
    parser.add_argument("--out", type=Path, help="the file of the results")
    return parser.parse_args()


@contextmanager
def _stack() -> Iterator[LiveStack]:
    with run_live_stack(
        PENSTOCK_WORKER_ENGINE="sim",
        PENSTOCK_SIM_STEP_MS=str(STEP_MS),
        PENSTOCK_MAX_NUM_SEQS=str(MOST_STREAMS),
    ) as stack:
        stack.manage("shell", "--no-imports", "--command", _NO_LIMIT)
        yield stack


def _measure_websockets(stack: LiveStack, side: Side, count: int, idle_seconds: float) -> str:
    """Open so many connections that ask for nothing, and read what that takes."""
    pids = side.programs()[GATEWAY]
    before = memory_bytes(pids)
    alone = measure_idle(side, idle_seconds)[GATEWAY]
    with idle_websockets(stack, count) as websockets:
        share = measure_idle(side, idle_seconds)[GATEWAY]
        after = memory_bytes(pids)
        still_open = websockets.count_open()
    return report.websockets(
        still_open, bytes_each=(after - before) / count, share=share, share_alone=alone
    )


def _memory_over(side: Side, load: RoundRunner, requests: int) -> list[tuple[int, int]]:
    """Return the gateway's memory in bytes after so many requests, reading by reading."""
    readings = []
    round_ = Round(streams=64, requests=REQUESTS_A_READING, max_tokens=1, prompts=SHORT)
    for done in range(REQUESTS_A_READING, requests + 1, REQUESTS_A_READING):
        side.run(round_)
        readings.append((done, memory_bytes(side.programs()[GATEWAY])))
        print(report.reading(*readings[-1]), flush=True)
    return readings


if __name__ == "__main__":
    main()
