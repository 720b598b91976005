"""What gathers for a gateway while Redis takes nothing leaves in batches that hold nobody up."""

from typing import Any

from redis.asyncio import Redis

from gpu_workers.frames.writer import FrameWriter
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import (
    MAX_FRAMES_OF_A_BATCH,
    Confirmation,
    Delta,
    FrameBatch,
    Outcome,
    Terminal,
    TokenUsage,
)
from tests.support.polling import eventually

GATEWAY = "gateway"
FRAMES = 2 * MAX_FRAMES_OF_A_BATCH + 500


async def a_writer(redis: Redis) -> FrameWriter:
    """A worker's writer in which all of these frames have gathered."""
    writer = FrameWriter(
        redis, pool="sim", worker_id="w#1", on_gateway_lost=lambda gateway_id: None
    )
    for seq in range(FRAMES):
        delta = Delta(
            request_id="r", attempt=1, seq=seq, chunks=[b"x"], completion_tokens=seq, token_ids=[]
        )
        writer.append(GATEWAY, delta)
    return writer


async def batches(redis: Redis) -> list[FrameBatch]:
    written: Any = await redis.lrange(keys.gateway_frames(GATEWAY, "sim"), 0, -1)
    return [codec.decode_frames(each) for each in written]


async def test_what_has_gathered_leaves_in_bounded_batches_in_order(dispatch_redis: Redis) -> None:
    writer = await a_writer(dispatch_redis)
    await writer.wait_written(GATEWAY)
    written = await batches(dispatch_redis)
    assert [len(each.frames) for each in written] == [MAX_FRAMES_OF_A_BATCH] * 2 + [500]
    assert [each.number for each in written] == [1, 2, 3]
    frames = [frame for each in written for frame in each.frames]
    assert [frame.seq for frame in frames] == list(range(FRAMES))
    await writer.close()


async def test_what_waits_for_its_write_is_not_confirmed_with_what_was_written(
    dispatch_redis: Redis,
) -> None:
    writer = await a_writer(dispatch_redis)
    await dispatch_redis.client_pause(60_000, all=False)
    try:
        writer.confirm(Confirmation(gateway_id=GATEWAY, number=3))
        terminal = Terminal(
            request_id="r",
            attempt=1,
            seq=FRAMES,
            outcome=Outcome.COMPLETED,
            usage=TokenUsage(),
        )
        kept = codec.decode_frames(writer.last_frames(GATEWAY, terminal)).frames
        assert [frame.seq for frame in kept] == list(range(FRAMES - len(kept) + 1, FRAMES + 1))
        assert len(kept) > MAX_FRAMES_OF_A_BATCH, "as many as are kept of one request"
    finally:
        await dispatch_redis.client_unpause()
    await writer.wait_written(GATEWAY)
    await eventually(lambda: batches(dispatch_redis))
    await writer.close()
