"""One run: a workload, a policy and the engine model, in virtual time."""

from dataclasses import dataclass, field

from gpu_workers.protocol.adapters import AdapterLevel
from tests.benchmarks.fairness.engine import Engine, EngineModel, Request, Step
from tests.benchmarks.fairness.policies import Policy
from tests.benchmarks.fairness.workloads import Arrivals, Workload

SAMPLE_EVERY_MS = 100.0


@dataclass(slots=True)
class Sample:
    """What each tenant had been served by then, in units, and who had work waiting."""

    at_ms: float
    served: dict[str, float]
    waiting: frozenset[str]


@dataclass(slots=True)
class Run:
    """All that the measures need of one run."""

    workload: Workload
    requests: list[Request] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    steps: list[tuple[float, Step]] = field(default_factory=list)  # each with when it began
    # How many adapters were taken to each level
    loads: dict[AdapterLevel, int] = field(default_factory=dict)

    @property
    def duration_ms(self) -> float:
        return self.workload.seconds * 1000


def simulate(workload: Workload, policy: Policy, *, model: EngineModel, seed: int = 1) -> Run:
    """Runs until the workload's time is over; what is then unfinished stays so."""
    engine = Engine(model)
    run = Run(workload=workload, loads=engine.loads.counts)
    arrivals = Arrivals(workload, seed)
    served = dict.fromkeys(workload.tenants, 0.0)
    now, sampled, ended = 0.0, -SAMPLE_EVERY_MS, list[Request]()
    joint: frozenset[str] | None = None
    while now < run.duration_ms:
        arrived = arrivals.until(now, ended)
        run.requests += arrived
        for request in policy.turn(arrived, ended, engine, now):
            engine.add(request, now)
        waiting = frozenset(name for name, count in policy.waiting().items() if count)
        joint = waiting if joint is None else joint & waiting
        if now - sampled >= SAMPLE_EVERY_MS:
            # A tenant counts as waiting only if it was at every turn since the last sample.
            run.samples.append(Sample(now, dict(served), joint))
            sampled, joint = now, None
        if not engine.held:
            engine.stand_idle(now)
            ended, now = [], min(max(now + 0.1, arrivals.next_ms()), now + SAMPLE_EVERY_MS)
            continue
        step = engine.step(now)
        run.steps.append((now, step))
        for sequence, tokens in step.prefilled:
            # What its siblings prefill again is no service.
            served[sequence.request.tenant] += tokens * sequence.is_first
            served[sequence.request.tenant] += 0 if sequence.to_prefill else 2
        for name, sequences in step.decoding.items():
            served[name] += 2 * sequences
        ended, now = step.ended, now + step.duration_ms
    return run
