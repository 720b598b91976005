"""What becomes of an adapter of which nobody knows yet what it does: tried out, before its first
request has it."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import cast

import pytest
from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.adapters import trials
from gpu_workers.engine import BeginTexts, EngineDied, Output, ProbeFailed, Result
from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterEffect
from gpu_workers.protocol.messages import Envelope, Outcome
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.gpu_workers.adapters.conftest import Serving
from tests.support.polling import eventually
from tests.support.workers.adapters.store import AdapterStore, MadeAdapter, make_adapter
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway

CHANGES = make_adapter(1, up=1.0)
NOTHING = make_adapter(2, up=0.0)
BROKEN = make_adapter(3, up=math.nan)
OTHER = make_adapter(4, up=1.0)


class TriedEngine(SimEngine):
    """Notes in which order it is asked for what; `fails_with` is raised by probes, and those of
    `held` wait until it is set."""

    def __init__(self, in_memory: int = 2) -> None:
        super().__init__(step_seconds=0.001, adapter_slots=2, adapters_in_memory=in_memory)
        self.asked: list[tuple[str, str]] = []
        self.fails_with: Exception | None = None
        self.held: dict[str, asyncio.Event] = {}

    async def probe_adapter(self, name: str) -> AdapterEffect:
        self.asked.append(("probe", name))
        if name in self.held:
            await self.held[name].wait()
        if isinstance(self.fails_with, EngineDied):
            self.fail("killed")
        if self.fails_with is not None:
            raise self.fails_with
        return await super().probe_adapter(name)

    async def unload_adapter(self, name: str) -> None:
        self.asked.append(("unload", name))
        await super().unload_adapter(name)

    async def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        self.asked.append(("generate", envelope.adapter))
        async for item in super().generate(envelope, begin_texts):
            yield item


def envelope_of(adapter: MadeAdapter | None) -> Envelope:
    envelope = make_envelope(max_output_tokens=8)
    name = adapter.name if adapter else ""
    return structs.replace(envelope, adapter=name, adapter_name="acme/support" if adapter else "")


async def found(redis: Redis) -> dict[str, int]:
    stored = await redis.hgetall(keys.pool_adapter_effects("sim"))
    return {name.decode(): int(each) for name, each in cast("dict[bytes, bytes]", stored).items()}


async def outcome_of(gateway: FakeGateway, adapter: MadeAdapter | None) -> str:
    terminal = await gateway.terminal_of(await gateway.send(envelope_of(adapter)))
    return terminal.error.code or "" if terminal.error else terminal.outcome.value


async def test_an_adapter_whose_effect_is_unknown_is_tried_out_once_before_its_first_request(
    serving: Serving, dispatch_redis: Redis, gateway: FakeGateway, store: AdapterStore
) -> None:
    engine = TriedEngine(in_memory=1)
    async with serving(engine):
        for adapter in (CHANGES, NOTHING):
            await store.offer(adapter, needs_probe=True)
        for adapter in (CHANGES, NOTHING, CHANGES):
            assert await outcome_of(gateway, adapter) == Outcome.COMPLETED
        await eventually(lambda: found(dispatch_redis))
    assert await found(dispatch_redis) == {
        CHANGES.name: AdapterEffect.CHANGES,
        NOTHING.name: AdapterEffect.NONE,
    }
    assert await dispatch_redis.ttl(keys.pool_adapter_effects("sim")) > 0
    told = [each for each in engine.asked if each[0] != "unload"]
    assert told == [
        ("probe", CHANGES.name),
        ("generate", CHANGES.name),
        ("probe", NOTHING.name),
        ("generate", NOTHING.name),
        ("generate", CHANGES.name),
    ]
    entries = await gateway.usage_entries()
    assert len(entries) == 3, "what is asked for a trial is on nobody's record"


async def test_an_adapter_whose_effect_is_known_is_not_tried_out(
    serving: Serving, dispatch_redis: Redis, gateway: FakeGateway, store: AdapterStore
) -> None:
    engine = TriedEngine()
    await store.offer(CHANGES)
    async with serving(engine):
        assert await outcome_of(gateway, CHANGES) == Outcome.COMPLETED
    assert engine.asked == [("generate", CHANGES.name)]
    assert await found(dispatch_redis) == {}


async def test_one_whose_answers_are_not_finite_is_refused_and_unloaded_and_others_are_served(
    serving: Serving, dispatch_redis: Redis, gateway: FakeGateway, store: AdapterStore
) -> None:
    engine = TriedEngine(in_memory=1)
    for adapter in (BROKEN, OTHER):
        await store.offer(adapter, needs_probe=True)
    async with serving(engine):
        for _ in range(2):
            assert await outcome_of(gateway, BROKEN) == "adapter_refused"
        assert await outcome_of(gateway, None) == Outcome.COMPLETED
        assert await outcome_of(gateway, OTHER) == Outcome.COMPLETED

        async def told() -> bool:
            return (await found(dispatch_redis)).get(BROKEN.name) == AdapterEffect.NOT_FINITE

        await eventually(told)
    assert engine.asked.count(("probe", BROKEN.name)) == 1, "a refusal is remembered"
    assert ("unload", BROKEN.name) in engine.asked
    assert ("generate", BROKEN.name) not in engine.asked


@pytest.mark.parametrize("error", [ProbeFailed("full"), RuntimeError("?")], ids=repr)
async def test_a_trial_that_fails_leaves_the_adapter_served_and_its_effect_unknown(
    serving: Serving,
    dispatch_redis: Redis,
    gateway: FakeGateway,
    store: AdapterStore,
    error: Exception,
) -> None:
    engine = TriedEngine()
    engine.fails_with = error
    await store.offer(CHANGES, needs_probe=True)
    async with serving(engine):
        assert await outcome_of(gateway, CHANGES) == Outcome.COMPLETED
    assert await found(dispatch_redis) == {}


async def test_a_trial_that_hangs_holds_up_no_other_and_its_own_request_for_a_bounded_time(
    serving: Serving,
    dispatch_redis: Redis,
    gateway: FakeGateway,
    store: AdapterStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = TriedEngine(in_memory=2)
    engine.held[CHANGES.name] = asyncio.Event()
    monkeypatch.setattr(trials, "TRIAL_SECONDS", 1.0)
    for adapter in (CHANGES, OTHER, NOTHING):
        await store.offer(adapter, needs_probe=True)
    async with serving(engine):
        hung = await gateway.send(envelope_of(CHANGES))
        await eventually(lambda: ("probe", CHANGES.name) in engine.asked)
        for adapter in (OTHER, NOTHING, OTHER):  # for which the hung one has to leave no room
            assert await outcome_of(gateway, adapter) == Outcome.COMPLETED
        assert hung not in gateway.terminals
        assert ("unload", CHANGES.name) not in engine.asked
        assert (await gateway.terminal_of(hung)).outcome is Outcome.COMPLETED


async def test_an_engine_that_dies_of_a_trial_ends_its_worker(
    serving: Serving, gateway: FakeGateway, store: AdapterStore
) -> None:
    engine = TriedEngine()
    engine.fails_with = EngineDied("killed")
    await store.offer(CHANGES, needs_probe=True)
    async with serving(engine) as running:
        await gateway.send(envelope_of(CHANGES))
        assert await running.exit_code() is Exit.ENGINE_DIED


async def test_what_was_found_is_told_again_to_a_redis_that_lost_it(
    serving: Serving, dispatch_redis: Redis, gateway: FakeGateway, store: AdapterStore
) -> None:
    await store.offer(CHANGES, needs_probe=True)
    async with serving(TriedEngine()):
        await gateway.terminal_of(await gateway.send(envelope_of(CHANGES)))
        await eventually(lambda: found(dispatch_redis))
        await dispatch_redis.flushdb()
        await eventually(lambda: found(dispatch_redis))
