"""What the gateway is asked for: answers of one token, where requests count, and long ones, where
events do."""

from dataclasses import dataclass

from tests.benchmarks.load.prompts import SHORT
from tests.benchmarks.load.rounds import Round

MOST_STREAMS = 512


@dataclass(frozen=True, kw_only=True)
class Workload:
    name: str
    streams: int
    tokens: int
    requests: int
    is_streaming: bool = True

    def round(self, number: int) -> Round:
        """Return the round of a number; 0 warms up and is shorter."""
        return Round(
            streams=self.streams,
            requests=self.requests if number else max(self.streams, self.requests // 4),
            max_tokens=self.tokens,
            prompts=SHORT,
            is_streaming=self.is_streaming,
        )


def default(part_of_name: str = "") -> list[Workload]:
    every = [
        Workload(name="one token, streamed", streams=64, tokens=1, requests=2_000),
        Workload(
            name="one token, one answer", streams=64, tokens=1, requests=2_000, is_streaming=False
        ),
        Workload(name="256 tokens, streamed", streams=256, tokens=256, requests=256),
    ]
    return [each for each in every if part_of_name in each.name]
