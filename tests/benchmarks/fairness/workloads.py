"""Who asks what, and when. Rates are in parts of what the engine can serve of the usual request."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from tests.benchmarks.fairness.engine import EngineModel, Request
from tests.benchmarks.fairness.policies import Tenant

USUAL = (128, 128)
# Requests a second of the usual shape (128 tokens in, 128 out) that the engine's slots serve.
CAPACITY = EngineModel().requests_per_second(*USUAL)

Rate = Callable[[float], float]  # requests a second at a time in seconds


@dataclass(frozen=True, kw_only=True)
class Client:
    """A tenant's stream of requests: open with a `rate`, or closed with so many at a time."""

    tenant: Tenant
    rate: Rate | None = None
    concurrency: int = 0
    prompt: Callable[[float], int] = lambda _: USUAL[0]
    output: Callable[[float], int] = lambda _: USUAL[1]
    is_poisson: bool = True
    keys: int = 1
    adapters: tuple[str, ...] = ("",)
    # How often each adapter is asked for beside the others; empty: all alike
    adapter_weights: tuple[float, ...] = ()
    sequences: int = 1
    spread: float = 0.5  # sizes are drawn from mean * [1 - spread, 1 + spread]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """`backlogged` are those that always have work waiting after the warm-up; `victims` those whose
    latency is looked at, `flooder` whose place the others take in the run called alone."""

    name: str
    clients: list[Client]
    backlogged: list[str] = field(default_factory=list)
    victims: list[str] = field(default_factory=list)
    flooder: str = ""
    seconds: float = 60.0
    adapter_slots: int = 4

    @property
    def tenants(self) -> dict[str, Tenant]:
        return {client.tenant.name: client.tenant for client in self.clients}

    @property
    def is_uniform(self) -> bool:
        """Whether all ask for the same sizes: else throughput depends on whose requests are run."""
        sizes = [(c.prompt(t), c.output(t)) for c in self.clients for t in (0, self.seconds)]
        return len(set(sizes)) == 1

    @property
    def largest(self) -> tuple[int, int]:
        """The most tokens of a prompt and of an output."""
        prompts = [client.prompt(t) for client in self.clients for t in (0, self.seconds)]
        outputs = [client.output(t) for client in self.clients for t in (0, self.seconds)]
        return int(1.5 * max(prompts)) + 1, int(1.5 * max(outputs)) + 1


class Arrivals:
    """The requests of a workload in order of time; closed clients ask again as theirs end."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = count()
        self._closed = {c.tenant.name: c for c in workload.clients if c.concurrency}
        coming: list[Request] = []
        for client in workload.clients:
            coming += list(self._open(client, workload.seconds))
            coming += [self._request(client, 0.0) for _ in range(client.concurrency)]
        self._coming = sorted(coming, key=lambda each: each.arrived_ms)
        self._next = 0

    def until(self, now_ms: float, ended: list[Request]) -> list[Request]:
        """What has arrived by now, after these have ended."""
        begin = self._next
        while self._next < len(self._coming) and self._coming[self._next].arrived_ms <= now_ms:
            self._next += 1
        again = [
            self._request(self._closed[each.tenant], now_ms / 1000)
            for each in ended
            if each.tenant in self._closed
        ]
        return self._coming[begin : self._next] + again

    def next_ms(self) -> float:
        """When the next open arrival is due."""
        return self._coming[self._next].arrived_ms if self._next < len(self._coming) else 1e18

    def _open(self, client: Client, seconds: float) -> Iterator[Request]:
        if client.rate is None:
            return
        now = 0.0
        while now < seconds:
            rate = client.rate(now)
            if rate <= 0:
                now += 0.05
                continue
            now += self._random.expovariate(rate) if client.is_poisson else 1 / rate
            if client.rate(now) > 0:
                yield self._request(client, now)

    def _request(self, client: Client, now: float) -> Request:
        def draw(mean: int) -> int:
            spread = client.spread
            return max(1, round(mean * self._random.uniform(1 - spread, 1 + spread)))

        return Request(
            number=next(self._numbers),
            tenant=client.tenant.name,
            arrived_ms=now * 1000,
            prompt=draw(client.prompt(now)),
            output=draw(client.output(now)),
            key=f"key-{self._random.randrange(client.keys)}",
            adapter=self._adapter(client),
            sequences=client.sequences,
        )

    def _adapter(self, client: Client) -> str:
        if not client.adapter_weights:
            return self._random.choice(client.adapters)
        return self._random.choices(client.adapters, client.adapter_weights)[0]


def steady(part: float) -> Rate:
    return lambda _: part * CAPACITY


def on_off(part: float, period: float = 20.0) -> Rate:
    return lambda now: part * CAPACITY if now % period < period / 2 else 0.0


def bursts(part: float, factor: float = 3.0) -> Rate:
    """`factor` times the rate in one second of five, and less in the others."""
    calm = part * (5 - factor) / 4
    return lambda now: CAPACITY * (factor * part if now % 5 < 1 else calm)


def fixed(tokens: int) -> Callable[[float], int]:
    return lambda _: tokens


def vtc_workloads(seconds: float) -> list[Workload]:
    """The kinds of load of the VTC paper (Sheng et al., OSDI'24, section 5)."""
    one, two, three, four = (Tenant(name=name) for name in ("one", "two", "three", "four"))
    both = ["one", "two"]

    def made(name: str, clients: list[Client], backlogged: list[str]) -> Workload:
        return Workload(name=name, clients=clients, backlogged=backlogged, seconds=seconds)

    return [
        made(
            "constant, both overloaded, 2:1",
            [
                Client(tenant=one, rate=steady(1.6), is_poisson=False),
                Client(tenant=two, rate=steady(0.8), is_poisson=False),
            ],
            both,
        ),
        made(
            "on/off within share, other overloaded",
            [
                Client(tenant=one, rate=on_off(0.4), is_poisson=False),
                Client(tenant=two, rate=steady(1.5), is_poisson=False),
            ],
            [],
        ),
        made(
            "on/off overloaded, other overloaded",
            [
                Client(tenant=one, rate=on_off(2.0, seconds), is_poisson=False),
                Client(tenant=two, rate=steady(1.2), is_poisson=False),
            ],
            [],
        ),
        made(
            "Poisson, short against long",
            [
                Client(tenant=one, rate=steady(4.0), prompt=fixed(32), output=fixed(48)),
                Client(tenant=two, rate=steady(0.5), prompt=fixed(384), output=fixed(384)),
            ],
            both,
        ),
        made(
            "Poisson, long prompts against long outputs",
            [
                Client(tenant=one, rate=steady(2.0), prompt=fixed(600), output=fixed(32)),
                Client(tenant=two, rate=steady(0.8), prompt=fixed(32), output=fixed(384)),
            ],
            both,
        ),
        made(
            "rising client",
            [
                Client(tenant=one, rate=steady(0.4)),
                Client(tenant=two, rate=lambda now: CAPACITY * 4 * now / seconds),
            ],
            [],
        ),
        made(
            "distribution shift",
            [
                Client(
                    tenant=one,
                    rate=steady(1.5),
                    output=lambda now: 64 if now < seconds / 2 else 256,
                ),
                Client(
                    tenant=two,
                    rate=steady(1.5),
                    output=lambda now: 256 if now < seconds / 2 else 64,
                ),
            ],
            both,
        ),
        made(
            "many clients, four overloaded",
            [Client(tenant=each, rate=steady(0.6)) for each in (one, two, three, four)]
            + [Client(tenant=Tenant(name=f"light-{n}"), rate=steady(0.01)) for n in range(20)],
            ["one", "two", "three", "four"],
        ),
    ]


def flood_workloads(seconds: float) -> list[Workload]:
    """One tenant at 20 times its share against nine at half of theirs."""
    share = 1 / 10
    names = [f"victim-{number}" for number in range(9)]
    cap = 1.0 * share * CAPACITY * (USUAL[0] + 2 * USUAL[1])
    calm = [
        Client(tenant=Tenant(name=name, rate_cap=cap), rate=steady(share / 2)) for name in names
    ]
    bursty = [
        Client(tenant=Tenant(name=name, rate_cap=cap), rate=bursts(share / 2)) for name in names
    ]
    flooder = Tenant(name="flooder", rate_cap=cap)

    def made(name: str, flood: Client, victims: list[Client]) -> Workload:
        return Workload(
            name=name,
            clients=[flood, *victims],
            victims=names,
            flooder=flooder.name,
            seconds=seconds,
        )

    adapted = [
        Client(tenant=each.tenant, rate=each.rate, adapters=(f"of-{each.tenant.name}",))
        for each in calm
    ]
    cold = tuple(f"adapter-{number}" for number in range(64 - len(adapted)))
    flood = steady(20 * share)
    return [
        made("20x flood", Client(tenant=flooder, rate=flood), calm),
        made("20x flood, many keys", Client(tenant=flooder, rate=flood, keys=500), calm),
        made(
            "20x flood, long prompts", Client(tenant=flooder, rate=flood, prompt=fixed(1000)), calm
        ),
        made(
            "20x flood, long outputs", Client(tenant=flooder, rate=flood, output=fixed(512)), calm
        ),
        made("20x flood, 3x bursts", Client(tenant=flooder, rate=flood), bursty),
        made(
            "20x flood, 16 sequences a request",
            Client(tenant=flooder, rate=steady(20 * share / 16), sequences=16),
            calm,
        ),
        made(
            "20x flood, 64 adapters on 4 slots",
            Client(tenant=flooder, rate=flood, adapters=cold),
            adapted,
        ),
    ]


def adapter_workloads(seconds: float) -> list[Workload]:
    """Many adapters on few slots: the n-th of all is asked for 1/n as often as the first, and they
    go round among the tenants."""
    ranks, tenants, load = range(1, 1_001), 50, 0.3
    total = sum(1 / rank for rank in ranks)
    clients = []
    for number in range(tenants):
        mine = ranks[number::tenants]
        weights = tuple(1 / rank for rank in mine)
        clients.append(
            Client(
                tenant=Tenant(name=f"tenant-{number:02d}"),
                rate=steady(load * sum(weights) / total),
                adapters=tuple(f"adapter-{rank}" for rank in mine),
                adapter_weights=weights,
            )
        )
    return [
        Workload(
            name="1,000 adapters on 8 slots",
            clients=clients,
            victims=[each.tenant.name for each in clients],
            seconds=seconds,
            adapter_slots=8,
        )
    ]


def share_workloads(seconds: float) -> list[Workload]:
    weights = [Tenant(name=f"weight-{weight}", weight=weight) for weight in (1, 2, 4)]
    batch = Tenant(name="batch", service_class="batch")
    chat = [Tenant(name=f"chat-{number}") for number in range(3)]
    return [
        Workload(
            name="weights 1:2:4",
            clients=[Client(tenant=each, rate=steady(1.5)) for each in weights],
            backlogged=[each.name for each in weights],
            seconds=seconds,
        ),
        Workload(
            name="1, 4 and 16 sequences a request",
            clients=[
                Client(tenant=Tenant(name=f"wide-{n}"), rate=steady(1.5 / n), sequences=n)
                for n in (1, 4, 16)
            ],
            backlogged=[f"wide-{n}" for n in (1, 4, 16)],
            seconds=seconds,
        ),
        Workload(
            name="batch flood against interactive",
            clients=[
                Client(tenant=batch, rate=steady(2.0), output=fixed(256)),
                *(Client(tenant=each, rate=steady(0.12)) for each in chat),
            ],
            victims=[each.name for each in chat],
            flooder="batch",
            seconds=seconds,
        ),
        Workload(
            name="closed loop, 256 streams against 4 requests/s",
            clients=[
                Client(tenant=Tenant(name="flooder"), concurrency=256, output=fixed(256), spread=0),
                Client(tenant=Tenant(name="victim"), rate=lambda _: 4.0, output=fixed(32)),
            ],
            victims=["victim"],
            flooder="flooder",
            seconds=seconds,
        ),
    ]
