"""The matrix of workloads, the part of it that is run by default, and how a part is chosen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from tests.benchmarks.load.prompts import SHORT, long_prompts
from tests.benchmarks.load.rounds import Door, Round

STREAMS = (1, 16, 64, 256)
# At the pace of two slow cores each round then takes some seconds.
REQUESTS = {1: 10, 16: 64, 64: 192, 256: 384}
SHORT_TOKENS, LONG_TOKENS, LONG_SHARE = 64, 32, 2


class Cores(StrEnum):
    """Where processes run: where the scheduler puts them, or the engine on a core of its own."""

    SHARED = "shared"
    PINNED = "pinned"


class Prompts(StrEnum):
    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A row of the matrix."""

    cores: Cores = Cores.SHARED
    door: Door = Door.CHAT
    is_streaming: bool = True
    prompts: Prompts = Prompts.SHORT
    streams: int = 64

    @property
    def name(self) -> str:
        door = f"{self.door}{'' if self.is_streaming else ', not streamed'}"
        prompts = "" if self.prompts is Prompts.SHORT else ", long prompts"
        cores = "" if self.cores is Cores.SHARED else ", engine pinned"
        return f"{self.streams} x {door}{prompts}{cores}"

    def round(self, number: int) -> Round:
        """Return the round of a number; 0 warms up and is shorter."""
        requests = max(self.streams, REQUESTS[self.streams] // (1 if number else 4))
        prompts, tokens = SHORT, SHORT_TOKENS
        if self.prompts is Prompts.LONG:
            requests = max(self.streams, requests // LONG_SHARE)
            prompts, tokens = long_prompts(requests, first=number * 10_000), LONG_TOKENS
        return Round(
            door=self.door,
            is_streaming=self.is_streaming,
            streams=self.streams,
            requests=requests,
            max_tokens=tokens,
            prompts=prompts,
        )


def matrix() -> list[Workload]:
    """Return every workload."""
    return [
        Workload(cores=cores, door=door, is_streaming=streaming, prompts=prompts, streams=streams)
        for cores, door, streaming, prompts, streams in product(
            Cores, Door, (True, False), Prompts, STREAMS
        )
    ]


def default() -> list[Workload]:
    """Return those that a run without arguments measures, in a quarter of an hour on two cores:
    every number of streams at the door that most use, and each other thing at 64 streams."""
    return [
        *(Workload(streams=streams) for streams in STREAMS),
        Workload(prompts=Prompts.LONG),
        Workload(door=Door.COMPLETIONS),
        Workload(is_streaming=False),
        Workload(door=Door.WEBSOCKET),
        *(Workload(cores=Cores.PINNED, streams=streams) for streams in (1, 64, 256)),
    ]


def by_cores(workloads: Sequence[Workload]) -> Iterator[tuple[Cores, list[Workload]]]:
    """Yield the workloads of each kind of placement, which servers are started for."""
    for cores in Cores:
        if chosen := [each for each in workloads if each.cores is cores]:
            yield cores, chosen
