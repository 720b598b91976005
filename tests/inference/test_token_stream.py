"""A stream merges for a slow reader, up to a cap; the hub survives Redis and gateways vanish."""

import asyncio

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Delta, FrameBatch, Outcome, Terminal, TokenUsage
from inference import frame_gap
from inference.errors import SlowReader, StreamBroken
from inference.token_stream import MAX_UNREAD_BYTES, FrameHub, TokenStream
from tests.inference.cast import POOL
from tests.polling import eventually


def a_delta(seq: int, *chunks: bytes, attempt: int = 1) -> Delta:
    return Delta(
        request_id="a",
        attempt=attempt,
        seq=seq,
        chunks=list(chunks),
        completion_tokens=seq + 1,
        token_ids=[],
    )


def a_terminal(seq: int, *, attempt: int = 1) -> Terminal:
    return Terminal(
        request_id="a",
        attempt=attempt,
        seq=seq,
        outcome=Outcome.COMPLETED,
        usage=TokenUsage(completion_tokens=seq),
    )


@pytest.fixture
def ends() -> list[Terminal]:
    return []


@pytest.fixture
def gaps() -> list[int]:
    """The number of the frame that was missing, at each time of asking."""
    return []


@pytest.fixture
def stream(ends: list[Terminal], gaps: list[int]) -> TokenStream:
    return TokenStream("a", ends.append, lambda: None, lambda stream: gaps.append(stream.next_seq))


async def test_what_gathers_between_two_reads_comes_at_once(
    stream: TokenStream, ends: list[Terminal]
) -> None:
    stream.feed(a_delta(0, b"one"), "w")
    stream.feed(a_delta(1, b"two", b"three"), "w")
    stream.feed(a_terminal(2), "w")
    progress = await stream.next()
    assert progress.chunks == [b"one", b"two", b"three"]
    assert progress.end == ends[0]


async def test_a_reader_is_woken(stream: TokenStream) -> None:
    reading = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    stream.feed(a_delta(0, b"one"), "w")
    assert (await reading).chunks == [b"one"]


async def test_silence_wakes_a_reader_with_nothing(stream: TokenStream) -> None:
    stream.note_silence()
    progress = await stream.next()
    assert (progress.chunks, progress.end) == ([], None)


async def test_unread_output_has_a_cap_and_the_end_is_still_taken(
    stream: TokenStream, ends: list[Terminal]
) -> None:
    chunk = b"x" * (MAX_UNREAD_BYTES // 4)
    for seq in range(6):
        stream.feed(a_delta(seq, chunk), "w")
    assert stream.is_broken
    assert len((await stream.next()).chunks) == 5
    with pytest.raises(SlowReader):
        await stream.next()
    stream.feed(a_terminal(6), "w")
    assert len(ends) == 1


async def test_what_comes_after_a_gap_waits_until_the_gap_is_filled(
    stream: TokenStream, gaps: list[int], ends: list[Terminal]
) -> None:
    stream.feed(a_delta(0, b"one"), "w")
    for frame in (a_delta(3, b"four"), a_terminal(4)):
        stream.feed(frame, "w")
    assert gaps == [1], "asked once"
    assert (await stream.next()).chunks == [b"one"]
    assert not ends
    for frame in (a_delta(1, b"two"), a_delta(2, b"three"), a_delta(3, b"four"), a_terminal(4)):
        stream.feed(frame, "w")
    progress = await stream.next()
    assert progress.chunks == [b"two", b"three", b"four"]
    assert [progress.end] == ends


async def test_a_second_gap_is_asked_for_too(stream: TokenStream, gaps: list[int]) -> None:
    for seq in (1, 0, 3, 2):
        stream.feed(a_delta(seq, str(seq).encode()), "w")
    assert gaps == [0, 2]
    assert (await stream.next()).chunks == [b"0", b"1", b"2", b"3"]


async def test_a_gap_that_nobody_fills_breaks_the_stream_after_what_came_before_it(
    stream: TokenStream, ends: list[Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_gap, "PATIENCE_SECONDS", 0)
    stream.feed(a_delta(0, b"one"), "w")
    stream.feed(a_delta(2, b"three"), "w")
    stream.feed(a_terminal(3), "w")
    assert (await stream.next()).chunks == [b"one"]
    with pytest.raises(StreamBroken):
        await stream.next()
    assert len(ends) == 1


async def test_a_new_attempt_forgets_the_gap_of_the_old_one(stream: TokenStream) -> None:
    stream.feed(a_delta(1, b"old"), "w")
    stream.feed(a_delta(0, b"one", attempt=2), "w")
    stream.feed(a_delta(1, b"two", attempt=2), "w")
    assert (await stream.next()).chunks == [b"one", b"two"]


async def test_a_new_attempt_before_any_output_is_unseen(stream: TokenStream) -> None:
    stream.feed(a_delta(0, b"one", attempt=2), "w")
    stream.feed(a_delta(0, b"old", attempt=1), "w")
    assert (await stream.next()).chunks == [b"one"]
    assert stream.attempt == 2


async def test_a_new_attempt_after_output_breaks_the_stream(stream: TokenStream) -> None:
    stream.feed(a_delta(0, b"one"), "w")
    await stream.next()
    stream.feed(a_delta(0, b"one", attempt=2), "w")
    with pytest.raises(StreamBroken):
        await stream.next()


async def test_nothing_comes_after_the_end(stream: TokenStream, ends: list[Terminal]) -> None:
    stream.feed(a_terminal(0), "w")
    stream.feed(a_delta(1, b"late"), "w")
    stream.feed(a_terminal(2), "w")
    assert (await stream.next()).chunks == []
    assert len(ends) == 1


async def test_the_hub_beats_reads_and_takes_its_keys_with_it(
    dispatch_redis: Redis, dispatch_redis_url: str
) -> None:
    blocking = Redis.from_url(dispatch_redis_url, socket_timeout=None)
    hub = FrameHub(dispatch_redis, blocking)
    await hub.start()
    stream = hub.open("a", lambda terminal: None, lambda: None, pool=POOL)
    frames = keys.gateway_frames(hub.gateway_id)
    batch = FrameBatch(worker_id="w", frames=[a_delta(0, b"one")])
    await dispatch_redis.rpush(frames, b"not a frame", codec.encode(batch))
    assert (await stream.next()).chunks == [b"one"]
    heartbeat = keys.gateway_heartbeat(hub.gateway_id)
    assert await eventually(lambda: dispatch_redis.exists(heartbeat))
    await hub.stop()
    assert not await dispatch_redis.exists(heartbeat, frames)
    await blocking.aclose()


async def test_the_hub_reads_on_after_its_connection_broke(
    dispatch_redis: Redis, dispatch_redis_url: str
) -> None:
    blocking = Redis.from_url(dispatch_redis_url, socket_timeout=None, client_name="the-hub")
    hub = FrameHub(dispatch_redis, blocking)
    await hub.start()
    stream = hub.open("a", lambda terminal: None, lambda: None, pool=POOL)

    async def is_blocked() -> bool:
        clients = await dispatch_redis.client_list()
        return any(each["name"] == "the-hub" and each["cmd"] == "blmpop" for each in clients)

    await eventually(is_blocked)
    await dispatch_redis.client_kill_filter(_type="normal", skipme=True)
    batch = FrameBatch(worker_id="w", frames=[a_delta(0, b"one")])
    await dispatch_redis.rpush(keys.gateway_frames(hub.gateway_id), codec.encode(batch))
    assert (await asyncio.wait_for(stream.next(), 5)).chunks == [b"one"]
    await hub.stop()
    await blocking.aclose()
