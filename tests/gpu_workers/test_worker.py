"""A worker with the simulated engine over a real Redis and the real dispatch functions."""

import asyncio
from typing import cast

from redis.asyncio import Redis

from gpu_workers.engine import EngineDescription
from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.messages import Outcome, Resend, WorkerState
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.polling import eventually
from tests.support.workers.envelopes import ACME, ENDLESS, make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker, worker_infos


async def test_a_request_streams_ends_and_is_on_record_once(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=200)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        await running.ready()
        request_id = await gateway.send(make_envelope(max_output_tokens=20))
        terminal = await gateway.terminal_of(request_id)
    deltas = gateway.deltas[request_id]
    assert [delta.seq for delta in deltas] == list(range(len(deltas)))
    assert terminal.seq == len(deltas)
    assert terminal.outcome is Outcome.COMPLETED
    assert deltas[-1].completion_tokens == terminal.usage.completion_tokens
    assert deltas[0].prompt_tokens == terminal.usage.prompt_tokens
    assert not any(delta.prompt_tokens for delta in deltas[1:]), "told once"
    (entry,) = await gateway.usage_entries()
    assert entry.request_id == request_id
    assert entry.tenant_id == ACME
    assert entry.worker_id == running.worker_id
    assert entry.usage == terminal.usage
    assert entry.queue_ms is not None
    assert entry.ttft_ms is not None
    assert entry.ttft_ms >= entry.queue_ms


async def test_the_deltas_of_one_step_share_one_write(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps()
    engine = SimEngine(sleep=steps)
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        sent = [await gateway.send(make_envelope(ENDLESS, max_output_tokens=8)) for _ in range(32)]
        await eventually(lambda: engine.load().running + engine.load().waiting == 32)
        steps.grant(100)
        for request_id in sent:
            await gateway.terminal_of(request_id)
    assert max(gateway.batches) >= 30
    assert len(gateway.batches) < 32


async def test_what_a_gateway_misses_is_sent_again_also_after_the_end(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=1)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        await running.ready()
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=20))
        await gateway.delta_of(request_id)
        steps.grant(200)
        terminal = await gateway.terminal_of(request_id)
        sent = gateway.deltas.pop(request_id)
        del gateway.terminals[request_id]
        for attempt in (2, 1):
            resend = Resend(request_id=request_id, attempt=attempt, from_seq=1)
            await gateway.ask_again(running.worker_id, resend)
        assert await gateway.terminal_of(request_id) == terminal
    assert gateway.deltas[request_id] == sent[1:]


async def test_a_request_that_does_not_stream_comes_back_whole(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=100))):
        request_id = await gateway.send(make_envelope(stream=False))
        terminal = await gateway.terminal_of(request_id)
    assert request_id not in gateway.deltas
    assert terminal.body is not None
    assert b'"chat.completion"' in terminal.body
    (entry,) = await gateway.usage_entries()
    assert entry.ttft_ms is not None


async def test_a_cancellation_reaches_the_engine_and_its_tokens_are_counted(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=5)
    engine = SimEngine(sleep=steps)
    async with running_worker(sim_redis_url, engine):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=1000))
        await eventually(lambda: engine.load().running == 1)
        await eventually(lambda: _tokens(gateway, request_id, 5))
        assert await gateway.cancel(request_id) == b"running"
        terminal = await gateway.terminal_of(request_id)
        assert engine.load().running == 0
    assert terminal.outcome is Outcome.CANCELLED
    assert terminal.usage.completion_tokens == 5
    (entry,) = await gateway.usage_entries()
    assert entry.usage.completion_tokens == 5


async def _tokens(gateway: FakeGateway, request_id: str, count: int) -> bool:
    await gateway.read()
    deltas = gateway.deltas.get(request_id, [])
    return bool(deltas) and deltas[-1].completion_tokens >= count


async def test_the_scheduler_is_told_what_a_request_has_really_taken_while_it_runs(
    dispatch_redis: Redis, dispatch_redis_url: str, gateway: FakeGateway
) -> None:
    async def charged_output() -> bool:
        return await dispatch_redis.hget(request_key, "charged_output") == b"300"

    engine = SimEngine(sleep=Steps(granted=300))
    async with running_worker(dispatch_redis_url, engine):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=1000))
        request_key = keys.pool_request("sim", request_id)
        await eventually(charged_output)
        charged = await dispatch_redis.hget(request_key, "charged_input")
        counter = await dispatch_redis.hget(keys.pool_flow("sim", "interactive", ACME), "counter")
    assert charged is not None
    assert counter is not None
    assert int(charged) > 0
    assert float(counter) == int(charged) + 2 * 300


async def test_an_attempt_that_somebody_else_ended_sends_no_terminal(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=1)
    engine = SimEngine(sleep=steps)
    async with running_worker(sim_redis_url, engine):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=4))
        await gateway.delta_of(request_id)
        pool = keys.pool_prefix("sim")
        accepted = await dispatch_redis.fcall(
            functions.FINISH, 1, pool, request_id, 1, b"the gateway's entry", 0, 1, 0, "", ""
        )
        assert accepted[0] == 1
        steps.grant(10)
        await eventually(lambda: engine.load().running == 0)
        other = await gateway.send(make_envelope(max_output_tokens=1))
        await gateway.terminal_of(other)
    assert request_id not in gateway.terminals


async def test_the_requests_of_a_gateway_that_vanished_are_aborted(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(sleep=Steps(granted=3))
    async with running_worker(sim_redis_url, engine):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=1000))
        await gateway.delta_of(request_id)
        await gateway.vanish()
        await eventually(lambda: engine.load().running == 0, timeout_seconds=10)
        await eventually(gateway.usage_entries)
    (entry,) = await gateway.usage_entries()
    assert entry.outcome is Outcome.CANCELLED
    assert entry.usage.completion_tokens > 0


async def test_a_refused_request_is_answered_and_unbilled(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, SimEngine(context_tokens=32, sleep=Steps(granted=10))):
        body = {"messages": [{"role": "user", "content": "water " * 100}]}
        request_id = await gateway.send(make_envelope(body))
        terminal = await gateway.terminal_of(request_id)
    assert terminal.outcome is Outcome.REFUSED
    assert terminal.error is not None
    assert terminal.error.code == "context_length_exceeded"
    assert terminal.usage.completion_tokens == 0


async def test_an_engine_that_dies_fails_what_cannot_go_on_typed_and_ends_the_worker(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(sleep=Steps(granted=3))
    async with running_worker(sim_redis_url, engine) as running:
        request_id = await gateway.send(
            make_envelope(ENDLESS, max_output_tokens=1000, is_resumable=False)
        )
        await eventually(lambda: _tokens(gateway, request_id, 3))
        engine.fail("killed by a drill")
        terminal = await gateway.terminal_of(request_id)
        assert await running.exit_code() is Exit.ENGINE_DIED
    assert terminal.outcome is Outcome.FAILED
    assert terminal.error is not None
    assert (terminal.error.status, terminal.error.code) == (502, "engine_failed")
    assert terminal.usage.completion_tokens == 3
    (entry,) = await gateway.usage_entries()
    assert entry.error_code == "engine_failed"


async def test_an_engine_that_dies_idle_is_noticed_too(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(sleep=Steps())
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        engine.fail("killed by a drill")
        assert await running.exit_code() is Exit.ENGINE_DIED


class BrokenEngine(SimEngine):
    async def start(self) -> EngineDescription:
        raise ValueError("there is no model at this path")


async def test_an_engine_that_does_not_start_ends_the_worker(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, BrokenEngine()) as running:
        assert await running.exit_code() is Exit.START_FAILED


class SlowEngine(SimEngine):
    """Loads until it is cancelled."""

    async def start(self) -> EngineDescription:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_worker_is_registered_while_its_engine_still_loads_and_can_be_drained(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, SlowEngine()) as running:
        await eventually(lambda: worker_infos(dispatch_redis))
        (info,) = (await worker_infos(dispatch_redis)).values()
        assert info.state is WorkerState.STARTING
        running.worker.drain()
        assert await running.exit_code() is Exit.DRAINED


async def test_a_new_worker_of_the_same_name_fences_the_old_one(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    old = SimEngine(sleep=Steps())
    async with running_worker(sim_redis_url, old) as first:
        await first.ready()
        async with running_worker(sim_redis_url, SimEngine(sleep=Steps())) as second:
            await second.ready()
            assert await first.exit_code() is Exit.FENCED
            assert second.worker.state is WorkerState.READY


async def test_a_worker_that_redis_lost_registers_again(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=100))) as running:
        await running.ready()
        await dispatch_redis.flushdb()
        await gateway.appear()
        await eventually(lambda: worker_infos(dispatch_redis))
        request_id = await gateway.send(make_envelope(max_output_tokens=2))
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED


async def test_a_worker_waits_for_the_dispatch_functions(
    dispatch_redis: Redis, sim_redis_url: str
) -> None:
    libraries = await dispatch_redis.function_dump()
    await dispatch_redis.function_flush()
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps())) as running:
        await asyncio.sleep(0)
        assert await worker_infos(dispatch_redis) == {}
        await dispatch_redis.function_restore(cast("str", libraries))
        await running.ready()


async def test_a_broken_connection_of_the_inbox_loses_no_request(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=100)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        await running.ready()
        await dispatch_redis.client_kill_filter(_type="normal", skipme=True)
        sent = [await gateway.send(make_envelope(max_output_tokens=2)) for _ in range(5)]
        for request_id in sent:
            assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
