"""What is read off a run: latency of victims, shares, Jain's index, the bound, throughput."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import combinations
from math import inf

from gpu_workers.protocol.adapters import AdapterLevel
from inference.lua_constants import MOST_PASSES
from tests.benchmarks.fairness.engine import Request, Step
from tests.benchmarks.fairness.policies import CLAIM_EVERY_MS
from tests.benchmarks.fairness.simulate import Run
from tests.support.dispatch.fairness_bound import Limits, gap_bound

WARM_UP = 0.2  # of a run's time is left out of shares and latencies


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Milliseconds; None where a measure does not apply."""

    ttft_p99_ms: float | None
    itl_p99_ms: float | None
    share_error: float | None
    jain: float | None
    violations: int
    largest_gap_of_bound: float
    units_per_second: float
    refused: int
    adapters: "AdapterFigures | None"


@dataclass(frozen=True, kw_only=True)
class AdapterFigures:
    """Of requests that need an adapter, in milliseconds: the longest that one waited, the longest
    time in which one waited and no adapter's turn began, and the drain bound on that (see
    docs/fairness.md); and how often one was taken to memory, and to a slot."""

    longest_wait_ms: float
    longest_standstill_ms: float
    bound_ms: float
    loads: int
    switches: int


def measure(run: Run) -> Figures:
    violations, largest = _gaps(run)
    error, jain = _shares(run)
    first, last = _window(run)
    served = sum(last.values()) - sum(first.values())
    return Figures(
        ttft_p99_ms=_ttft_p99(run),
        itl_p99_ms=_itl_p99(run),
        share_error=error,
        jain=jain,
        violations=violations,
        largest_gap_of_bound=largest,
        units_per_second=served / (run.duration_ms / 1000 * (1 - WARM_UP)),
        refused=sum(each.is_refused for each in run.requests),
        adapters=_adapters(run),
    )


def occupancy(run: Run, tenant: str) -> float:
    """How many slots a tenant holds at a time, on average over time."""
    steps = _steps(run)
    held = sum(step.duration_ms * step.held.get(tenant, 0) for step in steps)
    return held / sum(step.duration_ms for step in steps)


def _steps(run: Run) -> list[Step]:
    begin = WARM_UP * run.duration_ms
    return [step for at, step in run.steps if at >= begin]


def _window(run: Run) -> tuple[dict[str, float], dict[str, float]]:
    begin = WARM_UP * run.duration_ms
    after = [sample for sample in run.samples if sample.at_ms >= begin]
    return after[0].served, after[-1].served


def _ttft_p99(run: Run) -> float | None:
    """Of the victims; who has not had a first token by the end has waited until then."""
    victims, begin = set(run.workload.victims), WARM_UP * run.duration_ms
    waits = sorted(
        each.ttft_ms if each.first_token_ms >= 0 else run.duration_ms - each.arrived_ms
        for each in run.requests
        if each.tenant in victims and each.arrived_ms >= begin and not each.is_refused
        # The last second's requests would cut the waits of slow policies short, but not of fast.
        if each.arrived_ms <= run.duration_ms - 1_000
    )
    return waits[int(0.99 * (len(waits) - 1))] if waits else None


def _itl_p99(run: Run) -> float | None:
    """Of the victims' sequences: each token that is not a first one comes a step after another."""
    victims = run.workload.victims
    if not victims:
        return None
    gaps = sorted(
        (step.duration_ms, sum(step.decoding.get(name, 0) for name in victims))
        for step in _steps(run)
    )
    left = 0.01 * sum(tokens for _, tokens in gaps)
    for length, tokens in reversed(gaps):
        left -= tokens
        if left < 0:
            return length
    return None


def _shares(run: Run) -> tuple[float | None, float | None]:
    """The largest relative error of a share, and Jain's index of service by weight."""
    names, tenants = run.workload.backlogged, run.workload.tenants
    if not names:
        return None, None
    first, last = _window(run)
    served = {name: last[name] - first[name] for name in names}
    weights = {name: tenants[name].weight for name in names}
    total, weight = sum(served.values()), sum(weights.values())
    if not total:
        return None, None
    fair = [served[name] / weights[name] for name in names]
    error = max(abs(served[n] / total / (weights[n] / weight) - 1) for n in names)
    return error, sum(fair) ** 2 / (len(fair) * sum(each * each for each in fair))


def _gaps(run: Run) -> tuple[int, float]:
    """How many pairs broke the bound, and the largest gap in parts of it. Over any time in which
    both waited the gap is the spread of their difference in weighted service."""
    tenants = run.workload.tenants
    prompt, output = run.workload.largest
    violations, largest = 0, 0.0
    most = {name: max(step.held.get(name, 0) for _, step in run.steps) for name in tenants}
    for one, other in combinations(tenants, 2):
        if tenants[one].service_class != tenants[other].service_class:
            continue
        weights = tenants[one].weight, tenants[other].weight
        slots = max(1, most[one], most[other])
        limits = Limits(prompt=prompt, output=output, estimate=output, slots=slots)
        bound, gap = gap_bound(limits, *weights), _largest_gap(run, one, other)
        largest = max(largest, gap / bound)
        violations += gap > bound
    return violations, largest


def _largest_gap(run: Run, one: str, other: str) -> float:
    weights = run.workload.tenants[one].weight, run.workload.tenants[other].weight
    low = high = largest = 0.0
    is_joint = False
    for before, sample in zip(run.samples, run.samples[1:], strict=False):
        if one not in sample.waiting or other not in sample.waiting:
            is_joint = False
            continue
        if not is_joint:
            low = high = before.served[one] / weights[0] - before.served[other] / weights[1]
            is_joint = True
        now = sample.served[one] / weights[0] - sample.served[other] / weights[1]
        low, high = min(low, now), max(high, now)
        largest = max(largest, high - low)
    return largest


def _adapters(run: Run) -> AdapterFigures | None:
    """Of a request that waits: either its adapter runs, or another's turn begins within the bound,
    or its own does."""
    mine = [each for each in run.requests if each.adapter and not each.is_refused]
    if not mine:
        return None
    turns = _turns(mine)
    begins = sorted(begin for each in turns.values() for begin, _ in each)
    longest = standstill = held = 0.0
    for each in mine:
        end = each.started_ms if each.started_ms >= 0 else run.duration_ms
        longest = max(longest, end - each.arrived_ms)
        at = each.arrived_ms
        for begin in begins[bisect_right(begins, at) : bisect_left(begins, end)]:
            standstill, at = max(standstill, begin - at), begin
        if not any(begin < end and at < last for begin, last in turns[each.adapter]):
            standstill = max(standstill, end - at)
        if each.started_ms >= 0:
            held = max(held, (each.ended_ms if each.ended_ms >= 0 else run.duration_ms) - end)
    return AdapterFigures(
        longest_wait_ms=longest,
        longest_standstill_ms=standstill,
        bound_ms=MOST_PASSES * CLAIM_EVERY_MS + held,
        loads=run.loads[AdapterLevel.MEMORY],
        switches=run.loads[AdapterLevel.SLOT],
    )


def _turns(requests: list[Request]) -> dict[str, list[tuple[float, float]]]:
    """From when to when each adapter had requests running, one after another."""
    turns: dict[str, list[tuple[float, float]]] = {each.adapter: [] for each in requests}
    for each in sorted(requests, key=lambda each: each.started_ms):
        if each.started_ms < 0:
            continue
        mine, end = turns[each.adapter], each.ended_ms if each.ended_ms >= 0 else inf
        if mine and each.started_ms <= mine[-1][1]:
            mine[-1] = (mine[-1][0], max(end, mine[-1][1]))
        else:
            mine.append((each.started_ms, end))
    return turns
