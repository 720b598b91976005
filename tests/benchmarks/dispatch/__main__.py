"""What each call of reserve and dispatch takes of Redis, with a long queue and many workers.

    python -m tests.benchmarks.dispatch [--tenants 10000] [--queued 100000] [--workers 10 1000]
                                        [--adapters 10000] [--rounds 3] [--out FILE]

Each function is called alone many times between two readings, in the steady state: the pool full,
everybody waiting, each finish handing its slot on to the next (which is the claim of a full pool).
Two figures: the time of the functions as commandstats has it, on the clock; and the CPU time of
Redis's main thread, reading and answering the calls included, beside that of a PING. A round is
every pool size once; a figure is the median of the rounds. Of the largest pool it is then measured
what the calls take where each request needs an adapter, beside where none does.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redis import Redis

from tests.benchmarks.dispatch.adapters import ADAPTER_SLOTS, AdapterCost, Demand
from tests.benchmarks.dispatch.cost import (
    REPORTS_OF_A_REQUEST,
    SLOTS,
    Cost,
    Reading,
    medians,
    ping_cost,
    reserve_cost,
    together,
)
from tests.support.servers import servers

CALL_OF = {
    "enqueue": "enqueue",
    "claim": "claim of one request",
    "idle claim": "claim, nothing free",
    "progress": "progress of 64 requests",
    "finish": "finish, and claim of the next",
    "reserve": "reserve, six limits",
}


def measure(redis: "Redis", tenants: int, queued: int, workers: int) -> dict[str, Reading]:
    """Of a PING and each call, in a pool of so many workers that is filled for it."""
    redis.flushall()
    cost = Cost(redis, tenants, workers)
    cost.fill(queued)
    figures = {"PING": ping_cost(redis), **cost.measured()}
    figures["reserve"] = reserve_cost(redis, tenants)
    redis.flushall()
    return figures


def report(figures: dict[int, dict[str, Reading]]) -> str:
    """As a table of Markdown; of each pool size the functions' time, the CPU time, and that in
    PINGs; at the end the largest pool's functions beside the smallest one's."""
    sizes = sorted(figures)
    head = "".join(f" {n:,} workers: functions, us | CPU, us | in PINGs |" for n in sizes)
    rows = [f"| |{head} {sizes[-1]:,} / {sizes[0]:,} |", "|---|" + "---|" * (3 * len(sizes) + 1)]
    names = {
        "PING": "PING",
        **CALL_OF,
        "a request": "a request: enqueue, its part of progress, finish and claim, reserve",
    }
    for size in sizes:
        of = figures[size]
        share = of["progress"].times(REPORTS_OF_A_REQUEST / SLOTS)
        of["a request"] = together([of["enqueue"], share, of["finish"], of["reserve"]])
    for name, label in names.items():
        cells = "".join(_cells(figures[size][name], figures[size]["PING"]) for size in sizes)
        ratio = figures[sizes[-1]][name].functions / max(figures[sizes[0]][name].functions, 1e-9)
        rows.append(f"| {label} |{cells} {ratio:.2f} |")
    return "\n".join(rows)


def _cells(reading: Reading, ping: Reading) -> str:
    pings = reading.cpu / ping.cpu
    return f" {reading.functions:.1f} | {reading.cpu:.1f} | {pings:.1f} |"


def measure_demands(
    redis: "Redis", tenants: int, queued: int, workers: int, adapters: int
) -> dict[str, dict[str, Reading]]:
    """Of each call, by what the requests ask for; the median of the batches."""
    found = {}
    for demand in Demand:
        redis.flushall()
        cost = AdapterCost(
            redis, tenants, workers, adapters=adapters, demand=demand, typical=medians
        )
        cost.fill(queued)
        found[demand.value] = cost.measured()
        print(f"{demand.value}: {cost.held():.0f} requests run on a worker", flush=True)
    redis.flushall()
    return found


def report_demands(figures: dict[str, dict[str, Reading]]) -> str:
    """As a table of Markdown: the functions' time, and that beside no adapters'."""
    without, others = figures[Demand.NONE.value], [Demand.ZIPF.value, Demand.COLD.value]
    head = "".join(f" {each}, us | {each} / without |" for each in others)
    rows = [f"| functions | without, us |{head}", "|---|---|" + "---|" * (2 * len(others))]
    for name, label in {**CALL_OF, "post": "post of a load"}.items():
        if name == "reserve":
            continue
        before = without[name].functions if name in without else None
        cells = [f"{before:.0f}" if before else ""]
        for each in others:
            after = figures[each][name].functions if name in figures[each] else None
            cells.append(f"{after:.0f}" if after else "")
            cells.append(f"{after / before:.2f}" if before and after else "")
        rows.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def medians_of(rounds: list[dict[str, Reading]]) -> dict[str, Reading]:
    return {name: medians(each[name] for each in rounds if name in each) for name in rounds[0]}


def as_json(figures: dict[Any, dict[str, Reading]]) -> dict[Any, Any]:
    return {size: {name: asdict(each) for name, each in of.items()} for size, of in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--queued", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 1_000])
    parser.add_argument("--adapters", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a file for the figures as JSON")
    arguments = parser.parse_args()
    tenants, queued, largest = arguments.tenants, arguments.queued, max(arguments.workers)
    rounds: dict[int, list[dict[str, Reading]]] = {size: [] for size in arguments.workers}
    demands: dict[str, list[dict[str, Reading]]] = {each.value: [] for each in Demand}
    with Redis.from_url(servers().dispatch_redis.url, socket_timeout=None) as redis:
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
            for size, found in rounds.items():
                found.append(measure(redis, tenants, queued, size))
            measured = measure_demands(redis, tenants, queued, largest, arguments.adapters)
            for demand, of in measured.items():
                demands[demand].append(of)
    figures = {size: medians_of(found) for size, found in rounds.items()}
    by_demand = {demand: medians_of(found) for demand, found in demands.items()}
    print(
        f"{tenants:,} tenants, {queued:,} queued, {SLOTS} slots a worker; "
        f"medians of {arguments.rounds} rounds"
    )
    print(report(figures))
    print(f"{largest:,} workers of {ADAPTER_SLOTS} adapter slots, {arguments.adapters:,} adapters")
    print(report_demands(by_demand))
    if arguments.out:
        whole = {"calls": as_json(figures), "adapters": as_json(by_demand)}
        arguments.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
