"""Who asks what of a large pool, and when. Sizes are tokens; a slot decodes one each `ITL_MS`."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Final

SLOTS_A_WORKER: Final = 16
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 128
PREFILL_MS, ITL_MS = 40.0, 20.0
# Of each size, drawn evenly between half and one and a half times it.
_SPREAD: Final = 0.5
_MEAN_SECONDS: Final = (PREFILL_MS + OUTPUT_TOKENS * ITL_MS) / 1000


def requests_per_second(workers: int) -> float:
    """Return what the slots of so many workers serve."""
    return workers * SLOTS_A_WORKER / _MEAN_SECONDS


@dataclass(frozen=True, slots=True)
class Tenant:
    """`rate` is in requests a second."""

    number: int
    weight: int
    rate: float


@dataclass(slots=True, eq=False)
class Request:
    """Times in seconds; `units` is what it is charged."""

    tenant: Tenant
    arrived: float
    seconds: float
    units: float
    gateway: int
    started: float = -1.0
    is_stolen: bool = False
    is_at_home: bool = False


@dataclass(frozen=True, kw_only=True)
class Workload:
    """`backlogged` always have requests waiting; `victims` ask for less than their share."""

    name: str
    tenants: tuple[Tenant, ...]
    backlogged: frozenset[int] = frozenset()
    victims: frozenset[int] = frozenset()

    def arrivals(self, seconds: float, gateways: int, seed: int) -> Iterator[Request]:
        """Yield the requests of a Poisson process, in order of time."""
        rnd = random.Random(seed)
        bounds = list(accumulate(each.rate for each in self.tenants))
        now = 0.0
        while True:
            now += rnd.expovariate(bounds[-1])
            if now >= seconds:
                return
            [tenant] = rnd.choices(self.tenants, cum_weights=bounds)
            prompt, output = (
                size * rnd.uniform(1 - _SPREAD, 1 + _SPREAD)
                for size in (PROMPT_TOKENS, OUTPUT_TOKENS)
            )
            yield Request(
                tenant=tenant,
                arrived=now,
                seconds=(PREFILL_MS + output * ITL_MS) / 1000,
                units=prompt + 2 * output,
                gateway=rnd.randrange(gateways),
            )


def workloads(workers: int) -> list[Workload]:
    capacity = requests_per_second(workers)
    return [_calm(capacity, workers), _flood(capacity, workers), _weights(capacity)]


def _calm(capacity: float, workers: int) -> Workload:
    """Within what the pool serves; the largest tenants ask for far more than the rest."""
    many = 20 + 2 * workers
    sizes = [1 / (rank + 1) ** 0.8 for rank in range(many)]
    tenants = tuple(
        Tenant(number, 1, 0.85 * capacity * size / sum(sizes)) for number, size in enumerate(sizes)
    )
    return Workload(name="85 % of capacity", tenants=tenants)


def _flood(capacity: float, workers: int) -> Workload:
    """One tenant asks for twice what the pool serves, the others together for half of it."""
    others = 9 + 2 * workers
    victims = [Tenant(number, 1, 0.5 * capacity / others) for number in range(1, others + 1)]
    return Workload(
        name="flood of one",
        tenants=(Tenant(0, 1, 2 * capacity), *victims),
        victims=frozenset(each.number for each in victims),
    )


def _weights(capacity: float) -> Workload:
    """Nine tenants of weights 1, 2 and 4 that together ask for twice what the pool serves, each for
    more than its share."""
    numbers = count()
    tenants = [Tenant(next(numbers), weight, 0.0) for weight in (1, 2, 4) for _ in range(3)]
    total = sum(each.weight for each in tenants)
    asking = tuple(
        Tenant(each.number, each.weight, 2 * capacity * each.weight / total) for each in tenants
    )
    return Workload(
        name="weights 1:2:4, all overloaded",
        tenants=asking,
        backlogged=frozenset(each.number for each in asking),
    )
