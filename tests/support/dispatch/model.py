"""What the state machine of dispatch believes: its requests, workers and reservations."""

from dataclasses import dataclass, field

from inference.lua_constants import INPUT_WEIGHT, OUTPUT_WEIGHT
from tests.support.dispatch.virtual_pool import Ask


def cost(prompt: float, output: float) -> float:
    """Return the units that so many tokens are charged as."""
    return INPUT_WEIGHT * prompt + OUTPUT_WEIGHT * output


@dataclass
class Request:
    """`state`: queued, running or finished in Redis; lost while Redis knows nothing of it. `output`
    is what has been made of it so far, `service` what of that its tenant is charged with."""

    ask: Ask
    real_prompt: int
    real_output: int
    expires_ms: int
    state: str = "queued"
    attempt: int = 0
    worker: str = ""
    output: int = 0
    tries: int = 0
    excluded: set[str] = field(default_factory=set)
    is_cancelled: bool = False
    gives_way: bool = False
    attempts_seen: set[int] = field(default_factory=set)

    @property
    def place(self) -> tuple[str, str]:
        """Its flow."""
        return self.ask.tenant, self.ask.service_class

    @property
    def service(self) -> float:
        return cost(self.real_prompt, self.output) if self.output else 0.0

    def generate(self, steps: int) -> None:
        self.output = min(self.output + steps, self.real_output)


@dataclass
class Worker:
    """A worker's process. `hands` is what it holds as far as it knows: request id -> attempt.
    Redis may know nothing of it, or take it for dead, while it is silent."""

    name: str
    adapter_slots: int
    kv_tokens: int
    incarnation: int = 1
    is_known: bool = True
    is_silent: bool = False
    # Its loop was stale at a beat, and it has not claimed since
    is_busy: bool = False
    heartbeat_ms: int = 0
    hands: dict[str, int] = field(default_factory=dict)
    # How near it has said that it has adapters, since it registered; what it was told to get, when
    levels: dict[str, int] = field(default_factory=dict)
    coming: dict[str, int] = field(default_factory=dict)
    # What it could not get, when; of that, what it told of so late that it may have been given up;
    # it has left a prefetch unanswered, and told of nothing since
    missed: dict[str, int] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    is_mute: bool = False
    # When it last gave a request back since it could get no adapter
    closed_ms: int | None = None

    @property
    def worker_id(self) -> str:
        return f"{self.name}#{self.incarnation}"


@dataclass
class Gateway:
    """A gateway's process. `seen_ms`: when Redis last heard of it."""

    name: str
    incarnation: int = 1
    seen_ms: int = 0
    is_silent: bool = False

    @property
    def gateway_id(self) -> str:
        return f"{self.name}#{self.incarnation}"


@dataclass
class Model:
    """`gone`: the ids of gateways that the sweeper has found gone."""

    requests: dict[str, Request] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    gateways: list[Gateway] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    served: dict[tuple[str, str], float] = field(default_factory=dict)
    since: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    # How often each request that waits for an adapter was passed over
    passes: dict[str, int] = field(default_factory=dict)
    records: int = 0

    def all(self, *states: str) -> list[Request]:
        return [each for each in self.requests.values() if each.state in states]

    def pick(self, number: int, *states: str) -> Request | None:
        found = self.all(*states)
        return found[number % len(found)] if found else None

    def held_by(self, worker_id: str) -> list[Request]:
        return [each for each in self.all("running") if each.worker == worker_id]

    def sequences_on(self, worker_id: str) -> int:
        return sum(each.ask.sequences for each in self.held_by(worker_id))

    def worker(self, worker_id: str) -> Worker | None:
        """The living process of this id."""
        found = [each for each in self.workers if each.worker_id == worker_id]
        return found[0] if found else None

    def gateway(self, gateway_id: str) -> Gateway | None:
        """The process of this id, unless it is gone."""
        found = [each for each in self.gateways if each.gateway_id == gateway_id]
        return found[0] if found else None

    def serve(self, request: Request, change: float) -> None:
        self.served[request.place] = self.served.get(request.place, 0.0) + change
