"""Drills: what breaks is broken under load, and what must hold then is measured beside its bar.

`make chaos` calls it; about 25 minutes, on loopback, with processes and servers of its
own.
"""

import argparse
import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.targets import bars
from tests.chaos import drills, money_drill, sentinel_drill, weather_drills
from tests.chaos.adapters import drills as adapter_drills
from tests.chaos.adapters import intake_drills, traffic_drill
from tests.chaos.adapters.stack import AdapterStack
from tests.chaos.adapters.stores import BucketStore, FolderStore
from tests.chaos.report import Report
from tests.chaos.stack import Stack

DRILLS = {
    "worker": drills.kill_a_worker,
    "slow": drills.slow_a_worker,
    "pause": drills.pause_a_worker,
    "pauses": drills.pause_workers_often,
    "gateway": drills.kill_a_gateway,
    "cancel": drills.cancel,
    "redis": drills.lose_redis,
    "stall": weather_drills.stall_redis,
    "memory": weather_drills.fill_memory,
    "clock": weather_drills.step_clocks,
    "money": money_drill.money,
}


# On stacks with adapters, whose blobs lie in a folder, and in S3.
OF_ADAPTERS = {
    # What it breaks heals while the others run; `adapter-forgotten` waits for that.
    "adapter-validator": intake_drills.kill_the_validator,
    "adapter-worker": adapter_drills.kill_a_worker,
    "adapter-caches": adapter_drills.corrupt_caches,
    "adapter-redis": adapter_drills.empty_redis,
    "adapter-web": intake_drills.kill_the_control_plane,
    "adapter-disks": intake_drills.fill_disks,
    "adapter-store": intake_drills.lose_the_store,
    "adapter-traffic": traffic_drill.split_and_roll_back,
    "adapter-forgotten": intake_drills.end_what_was_forgotten,
}
OF_S3 = {"adapter-store-s3": intake_drills.lose_the_store}

_Stack = TypeVar("_Stack", bound=Stack)
Drills = Mapping[str, Callable[[_Stack, Report], Awaitable[None]]]


async def main(names: list[str]) -> Report:
    report = Report()
    started = time.monotonic()
    await _run(DRILLS, names, Stack, report)
    await _run(OF_ADAPTERS, names, lambda: AdapterStack(FolderStore()), report)
    await _run(OF_S3, names, lambda: AdapterStack(BucketStore(), "chaos-adapters-s3"), report)
    if "sentinel" in names:
        print(f"sentinel: {sentinel_drill.fail_over.__doc__}", flush=True)
        await sentinel_drill.fail_over(report)
    print(f"\n{report.table()}\n\n{time.monotonic() - started:.0f} s in all.")
    return report


async def _run(
    drills_of: Drills[_Stack], names: list[str], make: Callable[[], _Stack], report: Report
) -> None:
    """Run those that are named on one stack."""
    chosen = [name for name in names if name in drills_of]
    if not chosen:
        return
    started, stack = time.monotonic(), make()
    try:
        await stack.start()
        print(f"The stack is up after {time.monotonic() - started:.0f} s.", flush=True)
        for name in chosen:
            print(f"{name}: {drills_of[name].__doc__}", flush=True)
            try:
                await drills_of[name](stack, report)
            except Exception:  # noqa: BLE001 - the others go on, and this one is not met
                traceback.print_exc()
                report.add(name, "drills that broke off", 1, most=0)
        report.add(chosen[-1], "keys without an end", len(stack.keys_without_end()), most=0)
    finally:
        await stack.stop()


if __name__ == "__main__":
    every = [*DRILLS, *OF_ADAPTERS, *OF_S3, "sentinel"]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("drills", nargs="*", choices=[[], *every], help=", ".join(every))
    parser.add_argument("--write", type=Path, help="a file for the table")
    bars.add_option(parser)
    options = parser.parse_args()
    result = asyncio.run(main(options.drills or every))
    if options.write:
        options.write.write_text(result.table() + "\n")
    if broken := result.missed(times=False):
        sys.exit(f"Missed: {', '.join(broken)}.")
    # A small run is too short to be held to times; what is lost or breaks off is wrong in any.
    bars.judge(result.missed(times=True), options)
