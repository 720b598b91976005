"""What is read off a run: waits, shares, what was stolen, how full the slots were."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.benchmarks.cells.simulate import WARM_UP, Run
from tests.benchmarks.cells.workloads import Request


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Milliseconds and parts of one; None where a measure does not apply. Waits are of victims, of
    all where there are none; `share_error` is the largest of a backlogged tenant, by weight."""

    wait_p50_ms: float | None
    wait_p99_ms: float | None
    share_error: float | None
    jain: float | None
    stolen: float
    at_home: float
    occupancy: float


def measure(run: Run) -> Figures:
    begin = WARM_UP * run.seconds
    started = [each for each in run.started if each.started >= begin]
    error, jain = _shares(run, started)
    waits = _waits(run, begin)
    busy = sum(
        min(each.started + each.seconds, run.seconds) - max(each.started, begin)
        for each in run.started
        if each.started + each.seconds > begin
    )
    return Figures(
        wait_p50_ms=_quantile(waits, 0.5),
        wait_p99_ms=_quantile(waits, 0.99),
        share_error=error,
        jain=jain,
        stolen=sum(each.is_stolen for each in started) / len(started),
        at_home=sum(each.is_at_home for each in started) / len(started),
        occupancy=busy / (run.slots * (run.seconds - begin)),
    )


def _waits(run: Run, begin: float) -> list[float]:
    """In seconds; who still waits at the end has waited until then. Where everybody is overloaded
    waits say nothing."""
    if run.workload.backlogged:
        return []
    victims = run.workload.victims
    return sorted(
        (each.started if each.started >= 0 else run.seconds) - each.arrived
        for each in _all(run)
        # Those of the last second have not had the time to wait long.
        if begin <= each.arrived <= run.seconds - 1
        if not victims or each.tenant.number in victims
    )


def _all(run: Run) -> Iterable[Request]:
    yield from run.started
    yield from run.left


def _shares(run: Run, started: list[Request]) -> tuple[float | None, float | None]:
    names = run.workload.backlogged
    if not names:
        return None, None
    served = dict.fromkeys(names, 0.0)
    weights = {each.number: each.weight for each in run.workload.tenants if each.number in names}
    for request in started:
        served[request.tenant.number] += request.units
    total, weight = sum(served.values()), sum(weights.values())
    fair = [served[name] / weights[name] for name in names]
    error = max(abs(served[name] / total * weight / weights[name] - 1) for name in names)
    return error, sum(fair) ** 2 / (len(fair) * sum(each * each for each in fair))


def _quantile(waits: list[float], part: float) -> float | None:
    return 1000 * waits[int(part * (len(waits) - 1))] if waits else None
