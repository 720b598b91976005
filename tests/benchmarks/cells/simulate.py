"""One run: a workload, a number of workers, cells and a policy, in virtual time."""

import heapq
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.benchmarks.cells.cell import Cell
from tests.benchmarks.cells.placement import GATEWAYS, VIEW_SECONDS, Gateways, Policy
from tests.benchmarks.cells.workloads import (
    SLOTS_A_WORKER,
    Request,
    Workload,
    requests_per_second,
)

WARM_UP: Final = 0.25  # of a run's time is left out of every figure
# A cell with free slots and nobody waiting takes what waits in the longer of two others' queues.
STEAL_SECONDS: Final = 0.1


@dataclass(slots=True)
class Run:
    """All that the measures need; `started` are the requests that were given a slot."""

    workload: Workload
    seconds: float
    started: list[Request] = field(default_factory=list)
    left: list[Request] = field(default_factory=list)
    busy_slot_seconds: float = 0.0
    slots: int = 0


class Simulation:
    """Cells, gateways and the clock."""

    def __init__(
        self, workload: Workload, policy: Policy, *, workers: int, cells: int, seconds: float
    ) -> None:
        self._policy = policy
        self._seconds = seconds
        self._random = random.Random(2)
        self._mean_seconds = workers * SLOTS_A_WORKER / requests_per_second(workers)
        self._tenants = {each.number: each for each in workload.tenants}
        self.cells = _cells(workers, 1 if policy.is_whole else cells)
        self._gateways = Gateways(policy, self.cells, seed=3)
        self._ends: list[tuple[float, int, Cell, Request]] = []
        self._number = 0
        self.run = Run(workload, seconds, slots=workers * SLOTS_A_WORKER)

    def execute(self) -> Run:
        now, next_view, next_steal = 0.0, VIEW_SECONDS, STEAL_SECONDS
        period = self._policy.exchange_seconds
        next_exchange = period if period else math.inf
        for request in self.run.workload.arrivals(self._seconds, GATEWAYS, seed=1):
            while True:
                ends = self._ends[0][0] if self._ends else math.inf
                now = min(request.arrived, ends, next_view, next_steal, next_exchange)
                if now == request.arrived:
                    break
                if now == ends:
                    self._end(now)
                elif now == next_view:
                    self._gateways.look()
                    next_view += VIEW_SECONDS
                elif now == next_steal:
                    if self._policy.steals:
                        self._steal(now)
                    next_steal += STEAL_SECONDS
                else:
                    self._exchange()
                    next_exchange += period or math.inf
            self._arrive(request, now)
        self.run.left = [each for cell in self.cells for queue in cell.waiting.values()
                         for each in queue]  # fmt: skip
        return self.run

    def _arrive(self, request: Request, now: float) -> None:
        cell = self._gateways.place(request, self._mean_seconds)
        if cell.free > 0 and not cell.length:
            self._start(cell, request, now)
        else:
            cell.add(request)

    def _end(self, now: float) -> None:
        _, _, cell, request = heapq.heappop(self._ends)
        cell.free += 1
        self.run.busy_slot_seconds += request.seconds
        following = cell.take()
        if following is not None:
            self._start(cell, following, now)

    def _start(self, cell: Cell, request: Request, now: float) -> None:
        cell.start(request, now)
        self._number += 1
        heapq.heappush(self._ends, (now + request.seconds, self._number, cell, request))
        self.run.started.append(request)

    def _steal(self, now: float) -> None:
        if len(self.cells) == 1:
            return
        for cell in self.cells:
            if cell.free <= 0 or cell.length:
                continue
            victim = max(self._random.sample(self.cells, 2), key=lambda each: each.length)
            for _ in range(min(cell.free, math.ceil(victim.length / 2))):
                request = victim.take()
                if request is None:
                    break
                request.is_stolen, request.is_at_home = True, False
                self._start(cell, request, now)

    def _exchange(self) -> None:
        """Have every cell count, of each tenant, what a cell has served on average since the last
        time in place of what it has served itself: all cells then make good what is missing each
        for its part, where each would else make good all of it."""
        total: Counter[int] = Counter()
        for cell in self.cells:
            total.update(cell.served)
        for cell in self.cells:
            for number, units in total.items():
                more = units / len(self.cells) - cell.served.get(number, 0.0)
                cell.change_counter(self._tenants[number], more)
            cell.served.clear()


def _cells(workers: int, cells: int) -> list[Cell]:
    """As even as whole workers allow."""
    return [
        Cell(number, SLOTS_A_WORKER * (workers // cells + (number < workers % cells)))
        for number in range(cells)
    ]
