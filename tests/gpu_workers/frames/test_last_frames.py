"""What a worker leaves in Redis with a finished request, so that no end is lost with the worker."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.frames import writer
from gpu_workers.frames.writer import FrameWriter
from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Delta, Outcome, Resend, Terminal
from gpu_workers.sim.engine import SimEngine
from tests.support.polling import eventually
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker

LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Go on for ever."}],
    "ignore_eos": True,
}


async def test_a_finished_request_keeps_its_end_and_what_was_not_confirmed(
    sim_redis_url: str, dispatch_redis: Redis, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=50))):
        envelope = make_envelope(LONG, max_output_tokens=5, reads_last_frames=True)
        request_id = await gateway.send(envelope)
        terminal = await gateway.terminal_of(request_id)
    assert await gateway.last_frames(request_id) == [*gateway.deltas[request_id], terminal]
    ttl = await dispatch_redis.ttl(keys.pool_last_frames("sim", request_id))
    assert 0 < ttl <= 60


async def test_what_was_confirmed_is_not_kept(sim_redis_url: str, gateway: FakeGateway) -> None:
    steps = Steps(granted=3)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        envelope = make_envelope(LONG, max_output_tokens=6, reads_last_frames=True)
        request_id = await gateway.send(envelope)
        await eventually(lambda: _has_tokens(gateway, request_id, 3))
        confirmed = gateway.deltas[request_id][-1].seq
        assert gateway.numbers == list(range(gateway.numbers[0], gateway.numbers[-1] + 1))
        await gateway.confirm(running.worker_id, gateway.numbers[-1])
        await _inbox_is_read(running.worker_id, gateway)
        steps.grant(10)
        terminal = await gateway.terminal_of(request_id)
    kept = await gateway.last_frames(request_id)
    assert [frame.seq for frame in kept] == list(range(confirmed + 1, terminal.seq + 1))


async def _has_tokens(gateway: FakeGateway, request_id: str, count: int) -> bool:
    await gateway.read()
    deltas = gateway.deltas.get(request_id, [])
    return bool(deltas) and deltas[-1].completion_tokens >= count


async def _inbox_is_read(worker_id: str, gateway: FakeGateway) -> None:
    """Messages are taken in their order, and this one is answered."""

    async def is_answered() -> bool:
        await gateway.read()
        return ask in gateway.unkept

    ask = Resend(request_id="unknown", attempt=1, from_seq=0, gateway_id=gateway.gateway_id)
    await gateway.ask_again(worker_id, ask)
    await eventually(is_answered)


async def test_a_confirmation_of_what_was_never_sent_hides_nothing(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=1)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        envelope = make_envelope(LONG, max_output_tokens=4, reads_last_frames=True)
        request_id = await gateway.send(envelope)
        await eventually(lambda: _has_tokens(gateway, request_id, 1))
        sent = gateway.deltas[request_id][-1].seq
        await gateway.confirm(running.worker_id, 1_000_000)
        await _inbox_is_read(running.worker_id, gateway)
        steps.grant(10)
        terminal = await gateway.terminal_of(request_id)
    kept = await gateway.last_frames(request_id)
    assert [frame.seq for frame in kept] == list(range(sent + 1, terminal.seq + 1))


async def test_a_gateway_of_an_earlier_version_is_left_nothing(
    sim_redis_url: str, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would neither read nor remove it."""
    monkeypatch.setattr(writer, "MAX_BODY_BYTES", 10)
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=50))):
        request_id = await gateway.send(make_envelope(stream=False))
        terminal = await gateway.terminal_of(request_id)
    assert await gateway.last_frames(request_id) == []
    assert terminal.body is not None


async def test_a_large_body_stands_in_redis_once(
    sim_redis_url: str, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_BODY_BYTES", 10)
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=50))) as running:
        request_id = await gateway.send(make_envelope(stream=False, reads_last_frames=True))
        written = await gateway.terminal_of(request_id)
        [kept] = await gateway.last_frames(request_id)
        again = Resend(request_id=request_id, attempt=1, from_seq=0)
        await gateway.ask_again(running.worker_id, again)
        del gateway.terminals[request_id]
        resent = await gateway.terminal_of(request_id)
    assert (written.body, written.is_body_kept) == (None, True)
    assert isinstance(kept, Terminal)
    assert kept.body is not None
    assert b'"chat.completion"' in kept.body
    assert (kept.is_body_kept, kept.outcome) == (False, Outcome.COMPLETED)
    assert resent == kept, "for a gateway that does not find it in Redis any more"


async def test_a_gateway_is_told_what_is_kept_no_longer(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=2)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        silent = await gateway.send(make_envelope(LONG, max_output_tokens=50))
        await eventually(lambda: _has_tokens(gateway, silent, 1))
        last = gateway.deltas[silent][-1].seq
        for request_id, from_seq in ((silent, last + 1), ("gone", 0)):
            ask = Resend(
                request_id=request_id, attempt=1, from_seq=from_seq, gateway_id=gateway.gateway_id
            )
            await gateway.ask_again(running.worker_id, ask)
        await eventually(lambda: _is_told(gateway))
        steps.grant(100)
    assert [each.request_id for each in gateway.unkept] == ["gone"]


async def _is_told(gateway: FakeGateway) -> bool:
    await gateway.read()
    return bool(gateway.unkept)


async def test_a_worker_that_was_paused_still_keeps_what_it_sent_before(
    dispatch_redis: Redis, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, paused_seconds = asyncio.get_running_loop(), 0.0
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + paused_seconds)
    frames = FrameWriter(
        dispatch_redis, pool="sim", worker_id="w#1", on_gateway_lost=lambda gateway: None
    )
    delta = Delta(
        request_id="a", attempt=1, seq=0, chunks=[b"{}"], completion_tokens=1, token_ids=[1]
    )
    frames.append(gateway.gateway_id, delta)
    frames.end("a", 1)
    await frames.drain(5)
    await gateway.delta_of("a")
    del gateway.deltas["a"]
    paused_seconds = 2 * writer.KEPT_AFTER_END_SECONDS
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    frames.resend(Resend(request_id="a", attempt=1, from_seq=0), is_open=False)
    assert await gateway.delta_of("a") == delta
    await frames.close()
