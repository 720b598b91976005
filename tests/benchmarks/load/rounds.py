"""A round of load and what came of it; both cross a pipe as JSON. Times are milliseconds."""

from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median, quantiles
from urllib.parse import urlsplit

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class LoadError(RuntimeError):
    """A server answered something that is no complete answer."""


class Door(StrEnum):
    """The way into a server."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    WEBSOCKET = "websocket"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One server under load. `api_key` None where the server asks for none; `more_models` take
    turns with `model`."""

    name: str
    url: str
    model: str
    api_key: str | None = None
    more_models: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if urlsplit(self.url).hostname not in _LOOPBACK:
            raise ValueError(f"benchmarks talk to loopback only, not to {self.url}")


@dataclass(frozen=True, kw_only=True)
class Round:
    """`requests` in closed loop over `streams` connections; `prompts` in turn. With adapters, base
    and adapters are asked in turn too."""

    streams: int
    requests: int
    max_tokens: int
    prompts: list[str]
    door: Door = Door.CHAT
    is_streaming: bool = True
    has_adapters: bool = False


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One finished request. Without streaming, `ttft_ms` is that of the whole answer."""

    ttft_ms: float
    duration_ms: float
    completion_tokens: int


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """What came of a round. `gaps_ms` holds the p50 and p99 of the time between two arrivals of one
    stream, over all streams; `wall_ms` is from the first request to the last answer; `arrivals`
    counts those that held output."""

    samples: list[Sample]
    wall_ms: float
    gaps_ms: tuple[float, float]
    arrivals: int

    @property
    def tokens(self) -> int:
        return sum(sample.completion_tokens for sample in self.samples)

    @property
    def tokens_per_second(self) -> float:
        return 1000 * self.tokens / self.wall_ms

    @property
    def tokens_per_arrival(self) -> float:
        return self.tokens / max(1, self.arrivals)

    @property
    def requests_per_second(self) -> float:
        return 1000 * len(self.samples) / self.wall_ms

    @property
    def ttft_p50_ms(self) -> float:
        return median(sample.ttft_ms for sample in self.samples)

    @property
    def ttft_p99_ms(self) -> float:
        return quantile([sample.ttft_ms for sample in self.samples], 99)

    @property
    def itl_p50_ms(self) -> float:
        """Median over streams of the mean time between tokens after the first."""
        return median(
            (sample.duration_ms - sample.ttft_ms) / max(1, sample.completion_tokens - 1)
            for sample in self.samples
        )


def quantile(values: list[float], percent: int) -> float:
    """Return a percentile; 0 of nothing."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]
