"""One cell: slots, and the queue before them in order of counters (VTC), as in docs/fairness.md.

What matters for where requests go is kept of the real scheduler, the rest is left out: no headroom,
classes, adapters or KV cache, and a cost that is known beforehand.
"""

import heapq
from collections import deque

from tests.benchmarks.cells.workloads import Request, Tenant


class Cell:
    """`served`: units of each tenant since totals were exchanged last; `counters`: of it and of
    what the exchange added, over the tenant's weight."""

    def __init__(self, number: int, slots: int) -> None:
        self.number = number
        self.slots = self.free = slots
        self.length = 0
        self.served: dict[int, float] = {}
        self.counters: dict[int, float] = {}
        self.waiting: dict[int, deque[Request]] = {}
        self._weights = 0  # of the tenants that wait
        self._order: list[tuple[float, int]] = []  # counters may have changed since
        self._floor = 0.0

    def add(self, request: Request) -> None:
        """Let a request wait; who was idle starts at the level of those that wait."""
        tenant = request.tenant
        queue = self.waiting.get(tenant.number)
        if queue is None:
            queue = self.waiting[tenant.number] = deque()
            self._weights += tenant.weight
            level = max(self.counters.get(tenant.number, 0.0), self._least())
            self.counters[tenant.number] = level
            heapq.heappush(self._order, (level, tenant.number))
        queue.append(request)
        self.length += 1

    def take(self) -> Request | None:
        """Take the first request of the tenant that was served least for its weight, for a slot
        here or in another cell."""
        while self._order:
            counter, number = self._order[0]
            if number not in self.waiting:
                heapq.heappop(self._order)
            elif self.counters[number] != counter:
                heapq.heapreplace(self._order, (self.counters[number], number))
            else:
                return self._take_first(number, counter)
        return None

    def start(self, request: Request, now: float) -> None:
        """Give it a slot, and charge its tenant."""
        self.free -= 1
        tenant = request.tenant
        request.started = now
        before = max(self.counters.get(tenant.number, 0.0), self._floor)
        self.counters[tenant.number] = before + request.units / tenant.weight
        self.served[tenant.number] = self.served.get(tenant.number, 0.0) + request.units

    def expected_wait(self, tenant: Tenant, mean_seconds: float) -> float:
        """Return the seconds that one more request of a tenant would wait, at its share."""
        if self.free > 0 and not self.length:
            return 0.0
        mine = self.waiting.get(tenant.number)
        if mine is None:
            return mean_seconds / self.slots
        return (len(mine) + 1) * self._weights / tenant.weight * mean_seconds / self.slots

    def change_counter(self, tenant: Tenant, units: float) -> None:
        """Count so many units more, or fewer, as served."""
        before = self.counters.get(tenant.number, self._floor)
        self.counters[tenant.number] = before + units / tenant.weight
        if units < 0 and tenant.number in self.waiting:
            heapq.heappush(self._order, (self.counters[tenant.number], tenant.number))

    def _take_first(self, number: int, counter: float) -> Request:
        queue = self.waiting[number]
        request = queue.popleft()
        self.length -= 1
        self._floor = max(self._floor, counter)
        if not queue:
            del self.waiting[number]
            self._weights -= request.tenant.weight
        return request

    def _least(self) -> float:
        while self._order and self._order[0][1] not in self.waiting:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order and len(self.waiting) > 1 else self._floor
