"""A stream takes frames from the worker that holds its request, and from nobody else."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Delta, Frame, FrameBatch, Outcome, Terminal, TokenUsage
from inference.streaming.frame_hub import FrameHub
from inference.streaming.token_stream import TokenStream
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker
from tests.support.gateways.service import Service
from tests.support.metrics import sample
from tests.support.polling import eventually

FORGED = "penstock_gateway_forged_frames_total"
HOLDER, INTRUDER = "holder#1", "intruder#1"


def a_delta(seq: int, chunk: bytes, *, attempt: int = 1, request_id: str = "a") -> Delta:
    return Delta(
        request_id=request_id,
        attempt=attempt,
        seq=seq,
        chunks=[chunk],
        completion_tokens=seq + 1,
        token_ids=[seq],
    )


def an_end(seq: int, *, attempt: int = 1, request_id: str = "a") -> Terminal:
    return Terminal(
        request_id=request_id,
        attempt=attempt,
        seq=seq,
        outcome=Outcome.COMPLETED,
        usage=TokenUsage(completion_tokens=seq),
    )


@pytest.fixture
def ends() -> list[Terminal]:
    return []


@pytest.fixture
def asked() -> list[TokenStream]:
    """The stream, at each time at which it asked who holds its request."""
    return []


@pytest.fixture
def stream(ends: list[Terminal], asked: list[TokenStream]) -> TokenStream:
    return TokenStream(
        "a", ends.append, lambda: None, lambda stream: None,
        on_unproven=asked.append, keeps_token_ids=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "forged", [a_delta(1, b"forged"), an_end(1), a_delta(0, b"forged"), an_end(900)], ids=repr
)
async def test_nobody_but_the_holder_is_heard(
    forged: Frame, stream: TokenStream, ends: list[Terminal], asked: list[TokenStream]
) -> None:
    before = sample(FORGED)
    stream.note_holder(1, HOLDER)
    stream.feed(a_delta(0, b"one"), HOLDER)
    stream.feed(forged, INTRUDER)
    stream.feed(a_delta(1, b"two"), HOLDER)
    stream.feed(an_end(2), HOLDER)
    progress = await stream.next()
    assert (progress.chunks, [progress.end]) == ([b"one", b"two"], ends)
    assert ends == [an_end(2)]
    assert sample(FORGED) == before + 1
    assert asked == []


async def test_what_comes_before_the_holder_is_known_waits_for_that(
    stream: TokenStream, ends: list[Terminal], asked: list[TokenStream]
) -> None:
    for frame in (a_delta(0, b"forged"), an_end(1)):
        stream.feed(frame, INTRUDER)
    stream.feed(a_delta(0, b"one"), HOLDER)
    assert asked == [stream], "asked once"
    assert not stream.has_begun
    stream.note_holder(1, HOLDER)
    stream.feed(an_end(1), HOLDER)
    assert (await stream.next()).chunks == [b"one"]
    assert ends == [an_end(1)]


async def test_a_later_attempt_is_that_of_whom_the_pool_names(
    stream: TokenStream, asked: list[TokenStream]
) -> None:
    stream.note_holder(1, HOLDER)
    stream.feed(a_delta(0, b"one"), HOLDER)
    for attempt in (2, 3):
        stream.feed(a_delta(0, b"forged", attempt=attempt), INTRUDER)
    stream.feed(a_delta(0, b"forged", attempt=2), HOLDER)
    assert asked == [stream]
    assert stream.attempt == 1
    stream.note_holder(1, HOLDER)
    stream.feed(a_delta(1, b"two"), HOLDER)
    assert (await stream.next()).chunks == [b"one", b"two"]
    assert not stream.is_broken


async def test_the_old_holder_is_heard_no_more_once_another_has_the_request(
    stream: TokenStream, ends: list[Terminal]
) -> None:
    stream.note_holder(1, HOLDER)
    stream.feed(a_delta(0, b"one"), HOLDER)
    again = Delta(
        request_id="a", attempt=2, seq=0, chunks=[b"one"], completion_tokens=1, token_ids=[0]
    )
    stream.feed(again, "second#1")
    stream.note_holder(2, "second#1")
    for attempt in (1, 2):
        stream.feed(an_end(1, attempt=attempt), HOLDER)
    assert not ends
    stream.feed(a_delta(1, b"two", attempt=2), "second#1")
    assert (await stream.next()).chunks == [b"one", b"two"]


# asked of the pool -------------------------------------------------------------------------------


@pytest.fixture
async def hub(dispatch_redis: Redis, gateway_redis_url: str) -> AsyncIterator[FrameHub]:
    blocking = Redis.from_url(gateway_redis_url, socket_timeout=None)
    redis = Redis.from_url(gateway_redis_url)
    hub = FrameHub(redis, blocking)
    await hub.start()
    yield hub
    await hub.stop()
    await blocking.aclose()
    await redis.aclose()


async def push(redis: Redis, hub: FrameHub, worker_id: str, *frames: Frame) -> None:
    batch = FrameBatch(worker_id=worker_id, frames=list(frames))
    await redis.rpush(keys.gateway_frames(hub.gateway_id, POOL), codec.encode(batch))


async def give(redis: Redis, request_id: str) -> None:
    """Have the pool say that the holder has the request."""
    key = keys.pool_request(POOL, request_id)
    await redis.hset(key, mapping={"worker": HOLDER, "attempt": 1})
    await redis.expire(key, 600)


async def test_the_pool_is_asked_who_holds_a_request(hub: FrameHub, dispatch_redis: Redis) -> None:
    stream = hub.open("a", lambda terminal: None, lambda: None, pool=POOL)
    await give(dispatch_redis, "a")
    await push(dispatch_redis, hub, INTRUDER, a_delta(0, b"forged"))
    await push(dispatch_redis, hub, HOLDER, a_delta(0, b"one"))
    assert (await asyncio.wait_for(stream.next(), 5)).chunks == [b"one"]
    assert stream.worker_id == HOLDER


async def test_it_is_asked_again_where_it_does_not_know(
    hub: FrameHub, dispatch_redis: Redis
) -> None:
    """As a Redis that has lost everything, until the worker has adopted what it holds."""
    streams = [hub.open(each, lambda end: None, lambda: None, pool=POOL) for each in "ab"]
    await give(dispatch_redis, "b")
    frames = [a_delta(0, each.encode(), request_id=each) for each in "ab"]
    await push(dispatch_redis, hub, HOLDER, *frames)
    assert (await asyncio.wait_for(streams[1].next(), 5)).chunks == [b"b"]
    assert not streams[0].has_begun
    await give(dispatch_redis, "a")
    assert (await asyncio.wait_for(streams[0].next(), 5)).chunks == [b"a"]


@pytest.mark.parametrize("is_queued", [True, False])
async def test_a_worker_that_was_not_given_a_request_cannot_speak_for_it(
    is_queued: bool,
    service: Service,
    worker: ScriptedWorker,
    worker_redis_url: Callable[[str], str],
    dispatch_redis: Redis,
) -> None:
    """It knows the gateway and the request's id, and says what it is not: the end, and more."""
    may_go_on = asyncio.Event()

    async def wait_between_words(run: Run) -> None:
        await run.say("One")
        await may_go_on.wait()
        await run.say(" two")
        await run.end()

    worker.script = wait_between_words
    if not is_queued:
        await worker.start()
    requests = service.gateway.completions.settlement.requests
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}], "stream": True}
    async with service.client() as client, Redis.from_url(worker_redis_url(POOL)) as intruder:
        asked = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        [request] = await eventually(requests.all)
        await eventually(lambda: request.is_enqueued)
        hub, forged = service.gateway.completions.hub, sample(FORGED)
        for attempt in (1, 2):
            for seq in (0, 1):
                for frame in (
                    a_delta(seq, b"forged", attempt=attempt, request_id=request.request_id),
                    an_end(seq + 1, attempt=attempt, request_id=request.request_id),
                ):
                    await push(intruder, hub, INTRUDER, frame)
        if is_queued:
            await worker.start()
        await eventually(lambda: worker.runs)
        await eventually(lambda: sample(FORGED) == forged + 8)
        may_go_on.set()
        answer = await asked
    assert "forged" not in answer.text
    assert answer.text.count('"content"') == 2
    assert answer.text.endswith("data: [DONE]\n\n")
    assert [each.outcome for each in await worker.records()] == [Outcome.COMPLETED]
