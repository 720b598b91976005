"""Penstock and vLLM's own server as sides of a comparison, each behind the same load generator."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from local_stack.supervisor import Supervisor

from tests.benchmarks.load.generator import RoundRunner
from tests.benchmarks.load.rounds import Door, Round, RoundResult, Target
from tests.benchmarks.measured import ENGINE, LOAD, Side
from tests.benchmarks.processes import children
from tests.support.places import ROOT
from tests.support.reference_vllm import ReferenceServer
from tests.support.stack_addresses import LiveStack

OURS, VLLMS = "Penstock", "vLLM's own server"
SERVER, WORKER = "server", "worker"

# supervisord's name -> ours; Celery's three processes run what is periodic.
_PROGRAMS = {
    "web": "gateway",
    "collector": "collector",
    "dispatch-redis": "dispatch Redis",
    "redis": "other Redis",
    "postgres": "PostgreSQL",
    "celery": "Celery",
    "webhooks": "Celery",
    "beat": "Celery",
    "worker-0": WORKER,
}


def penstock(
    stack: LiveStack,
    generator: RoundRunner,
    *,
    name: str = OURS,
    adapters: Sequence[str] = (),
    started_by_us: Callable[[], dict[str, int]] = dict,
) -> Side:
    """Return a stack with everything on. `adapters` are those that it has, by their public names;
    `started_by_us`: program -> process, of those that do not run under its supervisor."""
    supervisor = Supervisor(ROOT, stack.var_folder / "run", stack.var_folder / "log")
    target = Target(name=name, url=stack.url, model=stack.model, api_key=stack.acme_key)

    def programs() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for state in supervisor.states().values():
            if state.pid and state.name in _PROGRAMS:
                found.setdefault(_PROGRAMS[state.name], []).append(state.pid)
        found |= {name: [pid] for name, pid in started_by_us().items()}
        engine = [child for pid in found[WORKER] for child in children(pid)]
        return found | {ENGINE: engine, LOAD: [generator.pid]}

    return Side(
        name=name,
        run=_runner(generator, target, adapters),
        programs=programs,
        skips=lambda round_: round_.has_adapters and not adapters,
    )


def vllm(
    server: ReferenceServer, model: str, generator: RoundRunner, *, adapters: Sequence[str] = ()
) -> Side:
    """Return vLLM's own server, which has no websocket of this kind. `adapters` as it names
    them."""
    target = Target(name=VLLMS, url=server.url, model=model)

    def programs() -> dict[str, list[int]]:
        return {SERVER: [server.pid], ENGINE: children(server.pid), LOAD: [generator.pid]}

    return Side(
        name=VLLMS,
        run=_runner(generator, target, adapters),
        programs=programs,
        skips=lambda round_: (
            round_.door is Door.WEBSOCKET or (round_.has_adapters and not adapters)
        ),
    )


def _runner(
    generator: RoundRunner, base: Target, adapters: Sequence[str]
) -> Callable[[Round], RoundResult]:
    """Return what runs a round on the base alone, or on base and adapters in turn."""
    mixed = replace(base, more_models=list(adapters))
    return lambda round_: generator.run(round_, mixed if round_.has_adapters else base)
