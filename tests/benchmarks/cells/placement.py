"""Where a gateway puts a request: the whole pool as one queue, and pools in cells."""

import random
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.cells.cell import Cell
from tests.benchmarks.cells.workloads import Request, Tenant

# Gateways know of free slots what they last read, less what they have sent since.
GATEWAYS: Final = 8
VIEW_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class Policy:
    """`choices`: one (a tenant's home, or any cell if it has none) or two, the other at random.
    `exchange_seconds`: how often cells tell each other what they have served."""

    name: str
    is_whole: bool = False
    is_sticky: bool = True
    choices: int = 1
    steals: bool = False
    exchange_seconds: float | None = None


POLICIES: Final = (
    Policy(name="one queue", is_whole=True),
    Policy(name="cells, at random", is_sticky=False),
    Policy(name="cells, home only"),
    Policy(name="two choices", choices=2),
    Policy(name="two choices, stealing", choices=2, steals=True),
    Policy(name="two choices, stealing, totals", choices=2, steals=True, exchange_seconds=1.0),
)


class Gateways:
    """The views of all gateways, and the choice."""

    def __init__(self, policy: Policy, cells: list[Cell], seed: int) -> None:
        self._policy = policy
        self._cells = cells
        self._random = random.Random(seed)
        self._homes: dict[int, Cell] = {}
        self._views: list[list[int]] = []
        self.look()

    def look(self) -> None:
        """Read the free slots of every cell."""
        free = [cell.free for cell in self._cells]
        self._views = [list(free) for _ in range(GATEWAYS)]

    def place(self, request: Request, mean_seconds: float) -> Cell:
        """Return the cell that a gateway sends a request to."""
        view = self._views[request.gateway]
        home = self.home_of(request.tenant)
        chosen = home if self._policy.is_sticky else self._any()
        if self._policy.choices == 2 and view[home.number] <= 0:
            other = self._any()
            if view[other.number] > 0 or (
                other.expected_wait(request.tenant, mean_seconds)
                < home.expected_wait(request.tenant, mean_seconds)
            ):
                chosen = other
        view[chosen.number] -= 1
        request.is_at_home = chosen is home
        return chosen

    def home_of(self, tenant: Tenant) -> Cell:
        """Return a tenant's cell, where its prefixes are cached."""
        home = self._homes.get(tenant.number)
        if home is None:
            home = self._cells[random.Random(tenant.number).randrange(len(self._cells))]
            self._homes[tenant.number] = home
        return home

    def _any(self) -> Cell:
        return self._cells[self._random.randrange(len(self._cells))]
