"""Bugs to be planted in the dispatch functions, and whether the state machine finds each.

    python -m tests.support.dispatch.planted_bugs

A bug is a text that takes another's place. Where that is gone the bug has to be planted anew.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from redis.exceptions import ResponseError

from inference.redis_functions import DISPATCH, library_text
from tests.support.dispatch.machine import DispatchMachine

# Many short searches, each from a seed of its own, come upon a bug sooner than a long one, of which
# the first fifty examples are small.
SEEDS: Final = range(50)
FEW_SEEDS: Final = SEEDS[:3]
EXAMPLES: Final = 30


@dataclass(frozen=True, kw_only=True)
class PlantedBug:
    """`right` stands once in the library; `wrong` in its place is the bug. One that is found late
    is dear to look for."""

    name: str
    right: str
    wrong: str
    is_dear: bool = False

    def planted(self) -> str:
        """The library with the bug in it."""
        library = library_text(DISPATCH)
        if library.count(self.right) != 1:
            raise LookupError(
                f"The bug {self.name!r} cannot be planted: its text stands "
                f"{library.count(self.right)} times in the library, expected once. "
                "Give it the text that does the same now."
            )
        return library.replace(self.right, self.wrong)


BUGS: Final = [
    PlantedBug(
        name="an earlier attempt may finish",
        right="attempt ~= '0' and attempt == current_attempt)",
        wrong="attempt ~= '0')",
    ),
    PlantedBug(
        name="a finish that is repeated is recorded again",
        right="    return { 1, stream_id }\n",
        wrong="    return { 1, append_entry(prefix, 'record', entry, origin) }\n",
    ),
    PlantedBug(
        name="the prompt that was not needed is not given back",
        right="cost(input - charged_input, output - charged_output))",
        wrong="cost(math.max(0, input - charged_input), output - charged_output))",
    ),
    PlantedBug(
        name="who was idle starts with the counter that he left with",
        right="lift(prefix .. 'tenants:' .. path.class, flow, 'counter', "
        "get(pool, path.class .. ':floor'))",
        wrong="",
    ),
    PlantedBug(
        name="a request that has waited too long is started",
        right="may_wait = state == 'queued' and expires_ms > pool.waiting_now",
        wrong="may_wait = state == 'queued'",
    ),
    PlantedBug(
        name="a silent worker is given requests",
        right="return heartbeat ~= nil and heartbeat > pool.now - WORKER_LEASE_MS",
        wrong="return heartbeat ~= nil",
    ),
    PlantedBug(
        name="a worker is given again what it was lost with",
        right="  if string.find(request.excluded, ' ' .. worker_id .. ' ', 1, true) then",
        wrong="  if false then",
    ),
    PlantedBug(
        name="a request that a worker may not have is not put back",
        right="    put_back(pool, each.path, flow, each.id, each.deadline_ms, each.adapter)\n",
        wrong="",
    ),
    PlantedBug(
        name="a lost attempt stays charged",
        right="  charge(pool, path, flow, -cost(input, output))\n",
        wrong="",
    ),
    PlantedBug(
        name="what a worker takes back counts as another attempt",
        right="start_attempt(pool, path, flow, { id = request_id, attempt = attempt - 1,",
        wrong="start_attempt(pool, path, flow, { id = request_id, attempt = attempt,",
    ),
    PlantedBug(
        name="a request takes one slot, however many sequences it has",
        right="\n    + get(worker_of(pool, worker_id), 'extra')\n",
        wrong="\n",
    ),
    PlantedBug(
        name="what a silent gateway has asked for is started",
        right="  if may_wait and is_silent(pool, gateway) then",
        wrong="  if false then",
        is_dear=True,
    ),
    PlantedBug(
        name="what was set aside does not come back with its gateway",
        right="  bring_back(pool, gateway)\n",
        wrong="",
        is_dear=True,
    ),
    PlantedBug(
        name="a worker whose loop is stale keeps its credit",
        right="tonumber(loop_age_ms) > STALE_LOOP_MS",
        wrong="tonumber(loop_age_ms) < 0",
    ),
    PlantedBug(
        name="what a process had stays when another has its name",
        right="  drop_levels(pool, worker_id)\n  redis.call('ZREM', pool.prefix .. SUFFIX.paces",
        wrong="  redis.call('ZREM', pool.prefix .. SUFFIX.paces",
    ),
    PlantedBug(
        name="a worker that can get no adapter is told to get another",
        right="  if is_closed(pool, state) or state.awaited >= state.slots or",
        wrong="  if state.awaited >= state.slots or",
        is_dear=True,
    ),
    PlantedBug(
        name="an adapter that a worker has no more stays with it",
        right="  set_level(pool, worker_id, adapter, level > 0 and",
        wrong="  set_level(pool, worker_id, adapter, level >= 0 and",
    ),
    PlantedBug(
        name="a request that was withdrawn goes on waiting for its adapter",
        right="  note_waits(pool, path, adapter, request_id, nil)\n  if",
        wrong="  if",
    ),
    PlantedBug(
        name="a request holds a slot while its adapter loads",
        right="best and (nearest >= MEMORY or may_load_in_slot(pool, best, adapter))",
        wrong="best ~= nil",
    ),
]

# What the machine comes upon seldom, if at all: tests of their own find these.
SELDOM_FOUND: Final = [
    PlantedBug(
        name="a worker runs more adapters at once than it has slots for",
        right="  return state.distinct < state.slots\n",
        wrong="  return state.distinct <= state.slots\n",
    ),
    PlantedBug(
        name="a request whose adapter could not be prefetched is not handed over",
        right="return (state.mute or has_missed(pool, state, adapter)) and",
        wrong="return state.mute and",
    ),
    PlantedBug(
        name="a prefetch that failed or was lost is not asked for again",
        right="elseif not is_ready and (state.coming[adapter] or 0) + COMING_MS < pool.now then",
        wrong="elseif not is_ready and request.passes == 0 then",
    ),
    PlantedBug(
        name="who has left the queue has an adapter drain",
        right="    end_drain_for(pool, path.tenant, request_id, drains_on)\n    save(pool)",
        wrong="    save(pool)",
    ),
    PlantedBug(
        name="who needs no adapter waits behind those that wait for one",
        right="passed_over.for_adapters > 0 and not only_class and MOST_PASSED_OVER or 0",
        wrong="0",
    ),
]


def is_found(bug: PlantedBug, seeds: Iterable[int] = SEEDS) -> bool:
    """Runs the machine against the library with the bug until it objects, or no seed is left."""
    library = bug.planted()
    return any(_objects(library, number) for number in seeds)


def _objects(with_bug: str, number: int) -> bool:
    @seed(number)
    class Machine(DispatchMachine):
        library = with_bug

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=40,
                deadline=None,
                database=None,
                # What it finds need not be made small.
                phases=[Phase.generate],
                report_multiple_bugs=False,
                print_blob=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except (AssertionError, ResponseError):
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    only = parser.parse_args().only
    missed = []
    have_to_be = [bug for bug in BUGS if only in bug.name]
    for bug in [*have_to_be, *(bug for bug in SELDOM_FOUND if only in bug.name)]:
        began = time.monotonic()
        found = is_found(bug, SEEDS if bug in have_to_be else FEW_SEEDS)
        seconds, verdict = time.monotonic() - began, "found" if found else "MISSED"
        sys.stdout.write(f"{seconds:6.1f} s  {verdict}  {bug.name}\n")
        sys.stdout.flush()
        if not found and bug in have_to_be:
            missed.append(bug.name)
    sys.stdout.write(
        f"{len(have_to_be) - len(missed)} of {len(have_to_be)} planted bugs found that have to be\n"
    )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
