"""`make bench-fairness`: every workload under every policy, in virtual time, in a minute or two."""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from redis import Redis

from tests.benchmarks.fairness.engine import EngineModel
from tests.benchmarks.fairness.measure import measure, occupancy
from tests.benchmarks.fairness.policies import BASELINES, FirstCome, Penstock
from tests.benchmarks.fairness.report import OURS, Result, markdown, write
from tests.benchmarks.fairness.simulate import Run, simulate
from tests.benchmarks.fairness.workloads import (
    Workload,
    adapter_workloads,
    flood_workloads,
    share_workloads,
    vtc_workloads,
)
from tests.support.places import ROOT
from tests.support.servers import servers

SECONDS, QUICK_SECONDS = 240.0, 60.0
PLOTTED = {"20x flood": "flood", "weights 1:2:4": "weights"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a quarter of the time; writes nothing"
    )
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "fairness")
    arguments = parser.parse_args()
    seconds = QUICK_SECONDS if arguments.quick else SECONDS
    workloads = [
        *flood_workloads(seconds),
        *adapter_workloads(seconds),
        *share_workloads(seconds),
        *vtc_workloads(seconds),
    ]
    results: list[Result] = []
    plots: dict[str, Run] = {}
    begin = time.monotonic()
    with Redis.from_url(servers().dispatch_redis.url, socket_timeout=None) as redis:
        for workload in workloads:
            if arguments.only in workload.name:
                print(f"{time.monotonic() - begin:6.1f} s  {workload.name}", flush=True)
                results.append(compare(workload, redis, plots))
    print("\n" + markdown(results, seconds))
    if not arguments.quick and not arguments.only:
        write(arguments.out, results, plots, seconds)


def compare(workload: Workload, redis: "Redis", plots: dict[str, Run]) -> Result:
    model = EngineModel(adapter_slots=workload.adapter_slots)
    figures = {}
    for name, policy in BASELINES.items():
        run = simulate(workload, policy(workload.tenants), model=model)
        figures[name] = measure(run)
        if workload.name in PLOTTED and policy is FirstCome:
            plots[f"{PLOTTED[workload.name]}_first_come"] = run
    run = simulate(workload, Penstock(workload.tenants, redis), model=model)
    figures[OURS] = measure(run)
    if workload.name in PLOTTED:
        plots[f"{PLOTTED[workload.name]}_penstock"] = run
    if not workload.flooder:
        return Result(workload=workload, figures=figures, alone=None, unqueued=None)
    without = _without_flooder(workload, round(occupancy(run, workload.flooder)))
    alone, unqueued = (
        measure(simulate(without, FirstCome(workload.tenants), model=each))
        for each in (model, replace(model, slots=8 * model.slots))
    )
    return Result(workload=workload, figures=figures, alone=alone, unqueued=unqueued)


def _without_flooder(workload: Workload, slots: int) -> Workload:
    """The flooder's place is taken by as many streams as it had slots, of requests like its own,
    the next of which is asked when one ends."""
    clients = [
        replace(client, rate=None, concurrency=slots, sequences=1)
        if client.tenant.name == workload.flooder
        else client
        for client in workload.clients
    ]
    return replace(workload, clients=clients)


if __name__ == "__main__":
    main()
