"""A wall clock that is set while requests run: nothing that is measured notices."""

import asyncio
import time

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol.messages import Outcome
from gpu_workers.requests.inter_token_latency import InterTokenLatency
from gpu_workers.sim.engine import SimEngine
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker

HOURS = [-6, -5, 6]
MOST_MS = 20_000


class Wall:
    """The wall clock of this process, which a test may set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._offset_s = 0
        read_time, read_time_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: read_time() + self._offset_s)
        monkeypatch.setattr(
            time, "time_ns", lambda: read_time_ns() + self._offset_s * 1_000_000_000
        )

    def step(self, hours: int) -> None:
        self._offset_s += hours * 3_600


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    return Wall(monkeypatch)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("hours", HOURS)
async def test_a_request_ends_and_is_measured_right_when_the_wall_clock_is_set_under_it(
    hours: int, streams: bool, wall: Wall, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps()
    engine = SimEngine(sleep=steps)
    async with running_worker(sim_redis_url, engine):
        envelope = make_envelope(ENDLESS, max_output_tokens=20, stream=streams)
        await gateway.send(envelope)
        await eventually(lambda: engine.load().running)
        for _ in range(4):
            steps.grant(1)
            await eventually(steps.are_taken)
            await asyncio.sleep(0)  # the output of this step is taken before the next one
        wall.step(hours)
        steps.grant(100)
        terminal = await gateway.terminal_of(envelope.request_id)
    assert terminal.outcome is Outcome.COMPLETED
    [entry] = await gateway.usage_entries()
    assert entry.usage.completion_tokens == 20
    assert entry.queue_ms is not None
    assert entry.queue_ms < MOST_MS
    assert entry.ttft_ms is not None
    assert entry.queue_ms <= entry.ttft_ms < MOST_MS
    assert 0 <= entry.finished_at_ms - entry.arrived_at_ms < MOST_MS
    if streams:
        assert entry.itl_p95_ms is not None
        assert 0 <= entry.itl_p95_ms < MOST_MS


async def test_a_worker_whose_wall_clock_is_wrong_dates_by_redis(
    wall: Wall, sim_redis_url: str, dispatch_redis: Redis, gateway: FakeGateway
) -> None:
    seconds, _ = await dispatch_redis.time()
    envelope = make_envelope(max_output_tokens=2)
    wall.step(6)
    async with running_worker(sim_redis_url, SimEngine(step_seconds=0.001)):
        await gateway.send(envelope)
        await gateway.terminal_of(envelope.request_id)
    [entry] = await gateway.usage_entries()
    assert 0 <= entry.finished_at_ms / 1000 - seconds < MOST_MS / 1000
    assert entry.queue_ms is not None
    assert entry.queue_ms < MOST_MS


@pytest.mark.parametrize("hours", [-6, -5, -1, 1, 6])
def test_a_latency_of_any_size_is_counted(hours: int) -> None:
    latency = InterTokenLatency()
    latency.add(hours * 3_600 * 1_000_000_000)
    assert latency.count == 1
    quantile = latency.quantile_ms(0.5)
    assert quantile is not None
    assert quantile >= 0
