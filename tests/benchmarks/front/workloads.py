"""What both sides are asked for over the replayed engine."""

from dataclasses import dataclass

from tests.benchmarks.load.prompts import SHORT
from tests.benchmarks.load.rounds import Round

STREAMS, TOKENS = (1, 64, 256), (64, 512)
PACED_STREAMS, PACED_STEP_MS = 64, 20.0
# Tokens of a round, so that it takes a few seconds on two slow cores; more where streams need it.
TOKENS_A_ROUND = {1: 2_048, 64: 32_768, 256: 32_768}
WARM_UP_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Workload:
    """`tokens` are those of each answer; `step_ms` 0: as fast as steps are taken."""

    streams: int
    tokens: int
    step_ms: float = 0.0

    @property
    def name(self) -> str:
        streams = f"{self.streams} stream{'s' if self.streams > 1 else ''}"
        pace = f", a step each {self.step_ms:g} ms" if self.step_ms else ""
        return f"{streams}, {self.tokens} tokens{pace}"

    def round(self, number: int) -> Round:
        """Return the round of a number; 0 warms up and is shorter."""
        tokens = self.tokens if number else min(self.tokens, WARM_UP_TOKENS)
        budget = TOKENS_A_ROUND.get(self.streams, 256 * self.streams) // (1 if number else 4)
        requests = max(self.streams, budget // tokens)
        return Round(streams=self.streams, requests=requests, max_tokens=tokens, prompts=SHORT)


def default() -> list[Workload]:
    """Return what a run without arguments measures."""
    unpaced = [Workload(streams=each, tokens=tokens) for each in STREAMS for tokens in TOKENS]
    paced = [
        Workload(streams=PACED_STREAMS, tokens=tokens, step_ms=PACED_STEP_MS) for tokens in TOKENS
    ]
    return [*unpaced, *paced]
