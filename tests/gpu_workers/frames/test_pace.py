"""A busy worker writes less often; the beginning and the end of a stream wait for nothing."""

import asyncio
import time
from functools import partial

import pytest
from redis.asyncio import Redis

from gpu_workers.frames.pace import LOOK_EVERY_SECONDS, PACE_SECONDS, Pace
from gpu_workers.frames.writer import FrameWriter
from gpu_workers.protocol.messages import Delta, Outcome, Terminal, TokenUsage
from tests.support.polling import eventually
from tests.support.workers.listening_gateway import FakeGateway


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_an_idle_worker_writes_at_once() -> None:
    pace = Pace(now=0.0)
    assert pace.due(written_at=99.999, now=100.0) is None


def test_a_busy_worker_waits_between_two_writes() -> None:
    pace, now = Pace(now=0.0), LOOK_EVERY_SECONDS
    compute(LOOK_EVERY_SECONDS)
    assert pace.due(written_at=now, now=now) == now + PACE_SECONDS
    assert pace.due(written_at=now - PACE_SECONDS, now=now) is None
    assert pace.due(written_at=now + 100.0, now=now + 100.0) is None, "idle since"


class Never(Pace):
    """The pace of a worker that is so busy that nothing is ever due."""

    def __init__(self) -> None:
        super().__init__(now=0.0)

    def due(self, written_at: float, now: float) -> float:
        return now + 3600.0


@pytest.fixture
async def frames(dispatch_redis: Redis) -> FrameWriter:
    return FrameWriter(
        dispatch_redis,
        pool="sim",
        worker_id="w#1",
        on_gateway_lost=lambda gateway: None,
        pace=Never(),
    )


def a_delta(request_id: str, seq: int) -> Delta:
    return Delta(
        request_id=request_id,
        attempt=1,
        seq=seq,
        chunks=[b"{}"],
        completion_tokens=seq,
        token_ids=[seq],
    )


async def seqs_of(gateway: FakeGateway, request_id: str) -> list[int]:
    await gateway.read()
    return [each.seq for each in gateway.deltas.get(request_id, [])]


async def test_the_role_the_first_token_and_the_end_wait_for_no_pace(
    frames: FrameWriter, gateway: FakeGateway
) -> None:
    for seq in (0, 1):
        frames.append(gateway.gateway_id, a_delta("a", seq))
        await eventually(partial(_has, gateway, "a", seq))
    frames.append(gateway.gateway_id, a_delta("a", 2))
    for _ in range(10):
        await asyncio.sleep(0)
    assert await seqs_of(gateway, "a") == [0, 1], "waits"
    frames.append(gateway.gateway_id, a_delta("b", 0))
    await eventually(lambda: _has(gateway, "b", 0))
    assert await seqs_of(gateway, "a") == [0, 1, 2], "goes with the other one's first"
    frames.append(gateway.gateway_id, a_delta("a", 3))
    terminal = Terminal(
        request_id="a", attempt=1, seq=4, outcome=Outcome.COMPLETED, usage=TokenUsage()
    )
    frames.append_end(gateway.gateway_id, terminal, is_kept=True)
    assert await gateway.terminal_of("a") == terminal
    assert await seqs_of(gateway, "a") == [0, 1, 2, 3]
    await frames.close()


async def _has(gateway: FakeGateway, request_id: str, seq: int) -> bool:
    return seq in await seqs_of(gateway, request_id)
