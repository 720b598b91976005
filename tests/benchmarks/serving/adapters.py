"""What adapters cost: base traffic on an engine that has them beside one that has not, mixed
traffic beside vLLM's own server with the same adapters, and on the simulated engine residents
beside the base."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from gpu_workers.config import DEFAULT_TARGET_MODULES
from gpu_workers.demo_model import MODEL_FOLDER
from tests.benchmarks import sides
from tests.benchmarks.adapters.bringing import READY, AdapterOwner, Asker
from tests.benchmarks.adapters.variants import packed, write_variant
from tests.benchmarks.load.generator import RoundRunner
from tests.benchmarks.load.prompts import SHORT
from tests.benchmarks.load.rounds import Round, Target
from tests.benchmarks.measured import Side
from tests.benchmarks.serving.workloads import REQUESTS, SHORT_TOKENS
from tests.support.live_stack import run_live_stack
from tests.support.reference_vllm import reference_vllm
from tests.support.stack_addresses import LiveStack

WITHOUT: Final = "Penstock without adapters"
BASE, RESIDENTS = "the base", "residents"
# As `make up` has them; of each slot the traffic uses one adapter.
SLOTS, IN_MEMORY, LARGEST_RANK = 4, 32, 16
SLUG: Final = "measured"
# At steps of 20 ms a round takes some seconds.
SIM_TOKENS, SIM_REQUESTS_A_STREAM = 16, 10


class Traffic(StrEnum):
    """What is asked: the base, base and adapters in turn, or on the simulated engine either."""

    BASE = "base"
    MIXED = "mixed"
    SIM = "simulated"


@dataclass(frozen=True, kw_only=True)
class AdapterWorkload:
    traffic: Traffic
    streams: int

    @property
    def name(self) -> str:
        return {
            Traffic.BASE: f"{self.streams} x the base",
            Traffic.MIXED: f"{self.streams} x the base and {SLOTS} adapters",
            Traffic.SIM: f"{self.streams} x the simulated engine",
        }[self.traffic]

    def round(self, number: int) -> Round:
        """Return the round of a number; 0 warms up and is shorter."""
        is_sim = self.traffic is Traffic.SIM
        requests = SIM_REQUESTS_A_STREAM * self.streams if is_sim else REQUESTS[self.streams]
        return Round(
            streams=self.streams,
            requests=max(self.streams, requests // (1 if number else 4)),
            max_tokens=SIM_TOKENS if is_sim else SHORT_TOKENS,
            prompts=SHORT,
            has_adapters=self.traffic is Traffic.MIXED,
        )


def default() -> list[AdapterWorkload]:
    """Return what a whole run measures."""
    return [
        *(AdapterWorkload(traffic=Traffic.BASE, streams=streams) for streams in (1, 16, 64)),
        *(AdapterWorkload(traffic=Traffic.MIXED, streams=streams) for streams in (16, 64)),
        *(AdapterWorkload(traffic=Traffic.SIM, streams=streams) for streams in (16, 64)),
    ]


def by_engine(workloads: Sequence[AdapterWorkload]) -> Iterator[list[AdapterWorkload]]:
    """Yield the workloads of each engine, which servers are started for."""
    for is_sim in (False, True):
        if chosen := [each for each in workloads if (each.traffic is Traffic.SIM) is is_sim]:
            yield chosen


@contextmanager
def adapter_sides(
    workloads: Sequence[AdapterWorkload], generator: RoundRunner, folder: Path
) -> Iterator[list[Side]]:
    """Run the sides of these workloads, all of the simulated engine or none, until the block
    ends."""
    folders = [write_variant(number, folder) for number in range(1, SLOTS + 1)]
    with ExitStack() as exits:
        if workloads[0].traffic is Traffic.SIM:
            stack = exits.enter_context(run_live_stack(PENSTOCK_WORKER_ENGINE="sim"))
            yield _on_one_stack(stack, generator, _brought(stack, folders))
            return
        running = []
        if any(each.traffic is Traffic.BASE for each in workloads):
            plain = exits.enter_context(run_live_stack(PENSTOCK_ADAPTER_SLOTS="0"))
            running.append(sides.penstock(plain, generator, name=WITHOUT))
        stack = exits.enter_context(run_live_stack())
        names = {f"adapter-{number}": each for number, each in enumerate(folders)}
        reference = reference_vllm(
            MODEL_FOLDER,
            stack.model,
            folder / "vllm.log",
            max_num_seqs=stack.slots,
            arguments=_lora_arguments(names),
        )
        server = exits.enter_context(reference)
        vllms = sides.vllm(server, stack.model, generator, adapters=list(names))
        running.append(sides.penstock(stack, generator, adapters=_brought(stack, folders)))
        yield [*running, replace(vllms, skips=lambda round_: not round_.has_adapters)]


def _brought(stack: LiveStack, folders: Sequence[Path]) -> list[str]:
    """Bring adapters in as any tenant does; return their names once all answer."""
    owner = AdapterOwner(stack.url, stack.acme_key, stack.model, SLUG)
    asker = Asker(stack.url, stack.acme_key)
    try:
        versions = [owner.bring(packed(folder)) for folder in folders]
        for version in versions:
            owner.wait_until(version, *READY)
            asker.ask_until_there(version.name, SHORT[0], 1)
        return [version.name for version in versions]
    finally:
        asker.close()
        owner.close()


def _on_one_stack(stack: LiveStack, generator: RoundRunner, adapters: list[str]) -> list[Side]:
    """Return base and residents of the same processes as two sides."""
    base = Target(name=BASE, url=stack.url, model=stack.model, api_key=stack.acme_key)
    first, *others = adapters
    residents = Target(
        name=RESIDENTS, url=stack.url, model=first, api_key=stack.acme_key, more_models=others
    )
    programs = sides.penstock(stack, generator).programs
    return [
        Side(name=BASE, run=lambda round_: generator.run(round_, base), programs=programs),
        Side(
            name=RESIDENTS, run=lambda round_: generator.run(round_, residents), programs=programs
        ),
    ]


def _lora_arguments(names: dict[str, Path]) -> list[str]:
    """Return what gives vLLM's own server the same adapters, in as many slots for the same layers:
    by its own default it would take lm_head too, which costs every token."""
    return [
        "--enable-lora",
        f"--max-loras={SLOTS}",
        f"--max-cpu-loras={IN_MEMORY}",
        f"--max-lora-rank={LARGEST_RANK}",
        "--lora-target-modules",
        *DEFAULT_TARGET_MODULES,
        "--lora-modules",
        *(f"{name}={folder}" for name, folder in names.items()),
    ]
