"""Texts alone on the wire for gateways that build the events, whole events for those before."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from redis.asyncio import Redis

from gpu_workers.engine import BeginTexts, EmitText, Output, Result
from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Delta, Envelope, Outcome, TextDelta
from gpu_workers.sim.engine import SimEngine
from tests.support.polling import eventually
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker

BODY = {"messages": [{"role": "user", "content": "Go on for ever."}], "ignore_eos": True}
TOKENS = 6
FORM = (b'{"content":', b"}")
TEXT = 'a "wörd"\n'


async def at_once(seconds: float) -> None:
    """Time passes without waiting."""
    await asyncio.sleep(0)


class TextEngine(SimEngine):
    """Gives all outputs but the first as texts, as vLLM gives them without waking anybody."""

    async def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        assert begin_texts is not None
        emit: EmitText | None = None
        async for item in super().generate(envelope):
            if isinstance(item, Result):
                yield item
            elif emit is None:
                yield item
                emit = begin_texts(FORM)
            else:
                emit(TEXT, item.completion_tokens, item.token_ids)


async def test_a_gateway_that_reads_texts_is_sent_the_form_once(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, TextEngine(sleep=at_once)):
        envelope = make_envelope(BODY, max_output_tokens=TOKENS, reads_texts=True)
        request_id = await gateway.send(envelope)
        terminal = await gateway.terminal_of(request_id)
    (first,), texts = gateway.deltas[request_id], gateway.texts[request_id]
    assert [each.form for each in texts] == [FORM, *[None] * (len(texts) - 1)]
    assert {each.text for each in texts} == {TEXT}
    assert [each.seq for each in texts] == list(range(1, terminal.seq))
    token_ids = [each for text in texts for each in text.token_ids]
    assert len(first.token_ids + token_ids) == texts[-1].completion_tokens == TOKENS
    assert (terminal.outcome, terminal.usage.completion_tokens) == (Outcome.COMPLETED, TOKENS)


async def test_a_gateway_of_an_earlier_version_is_sent_whole_events(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, TextEngine(sleep=at_once)):
        request_id = await gateway.send(make_envelope(BODY, max_output_tokens=TOKENS))
        terminal = await gateway.terminal_of(request_id)
    assert not gateway.texts
    _, *deltas = gateway.deltas[request_id]
    event = '{"content":"a \\"wörd\\"\\n"}'.encode()
    assert [each.chunks for each in deltas] == [[event]] * len(deltas)
    assert deltas[-1].completion_tokens == terminal.usage.completion_tokens == TOKENS


async def test_texts_that_no_gateway_has_confirmed_go_with_the_end(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, TextEngine(sleep=at_once)):
        envelope = make_envelope(
            BODY, max_output_tokens=TOKENS, reads_texts=True, reads_last_frames=True
        )
        request_id = await gateway.send(envelope)
        terminal = await gateway.terminal_of(request_id)
    frames = [*gateway.deltas[request_id], *gateway.texts[request_id], terminal]
    assert await gateway.last_frames(request_id) == frames


async def test_an_attempt_that_is_preempted_is_resumed_from_the_texts_it_sent(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps()
    async with running_worker(sim_redis_url, TextEngine(sleep=steps)) as running:
        envelope = make_envelope(BODY, max_output_tokens=TOKENS, reads_texts=True)
        request_id = await gateway.send(envelope)
        for count in (1, 2, 3):
            steps.grant(1)
            await eventually(partial(_has_tokens, gateway, request_id, count))
        message = f"preempt {request_id} 1\n"
        await dispatch_redis.rpush(keys.pool_inbox("sim", running.worker_id), message)
        await eventually(lambda: _has_replayed(gateway, request_id))
        steps.grant(50)
        terminal = await gateway.terminal_of(request_id)
    assert (terminal.attempt, terminal.outcome) == (2, Outcome.COMPLETED)
    first, again = gateway.deltas[request_id]
    before = [text for text in gateway.texts[request_id] if text.attempt == 1]
    assert again.token_ids == first.token_ids + [each for text in before for each in text.token_ids]
    of_second = [text for text in gateway.texts[request_id] if text.attempt == 2]
    assert [text.form for text in of_second] == [FORM, *[None] * (len(of_second) - 1)]


async def _has_tokens(gateway: FakeGateway, request_id: str, count: int) -> bool:
    await gateway.read()
    sent: list[Delta | TextDelta] = [
        *gateway.deltas.get(request_id, []),
        *gateway.texts.get(request_id, []),
    ]
    return any(each.completion_tokens == count for each in sent)


async def _has_replayed(gateway: FakeGateway, request_id: str) -> bool:
    await gateway.read()
    return len(gateway.deltas[request_id]) == 2
