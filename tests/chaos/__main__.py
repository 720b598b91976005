"""Drills: what breaks is broken under load, and what must hold then is measured beside its bar.

`make chaos` calls it; about a quarter of an hour, on loopback, with processes and servers of its
own.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.chaos import drills, money_drill, sentinel_drill, weather_drills
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


async def main(names: list[str]) -> Report:
    report = Report()
    started = time.monotonic()
    if chosen := [name for name in names if name in DRILLS]:
        stack = Stack()
        try:
            await stack.start()
            print(f"The stack is up after {time.monotonic() - started:.0f} s.", flush=True)
            for name in chosen:
                print(f"{name}: {DRILLS[name].__doc__}", flush=True)
                await DRILLS[name](stack, report)
            report.add("after all", "keys without an end", len(stack.keys_without_end()), most=0)
        finally:
            await stack.stop()
    if "sentinel" in names:
        print(f"sentinel: {sentinel_drill.fail_over.__doc__}", flush=True)
        await sentinel_drill.fail_over(report)
    print(f"\n{report.table()}\n\n{time.monotonic() - started:.0f} s in all.")
    return report


if __name__ == "__main__":
    every = [*DRILLS, "sentinel"]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("drills", nargs="*", choices=[[], *every], help=", ".join(every))
    parser.add_argument("--write", type=Path, help="a file for the table")
    options = parser.parse_args()
    result = asyncio.run(main(options.drills or every))
    if options.write:
        options.write.write_text(result.table() + "\n")
    sys.exit(0 if result.is_met else 1)
