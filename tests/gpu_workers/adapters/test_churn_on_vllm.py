"""Adapters come and go on a worker with vLLM, and open streams notice nothing of it: a small round
of those that `python -m tests.benchmarks.adapter_proofs.churn` measures."""

from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.support.greedy_answers.compared import Verdict, compare
from tests.support.workers.adapters.churn import Size, Way, churned_worker
from tests.support.workers.worker_process import ENGINE_PYTHON

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]

# The streams' adapters take every slot where none is needed besides.
SIZES = {
    Way.REQUESTS: Size(
        base_streams=12, adapter_streams=6, stream_adapters=2, newcomers=24, slots=4, in_memory=6
    ),
    Way.PREFETCHES: Size(
        base_streams=12, adapter_streams=6, stream_adapters=3, newcomers=24, slots=3, in_memory=6
    ),
}


@pytest.mark.parametrize("way", list(Way))
async def test_streams_are_what_they_are_alone_while_adapters_come_and_go(
    dispatch_redis: Redis, sim_redis_url: str, tmp_path: Path, way: Way
) -> None:
    if not ENGINE_PYTHON.exists():
        pytest.skip("needs the engine environment: run `make up` once")
    async with churned_worker(dispatch_redis, sim_redis_url, tmp_path, SIZES[way]) as worker:
        alone = await worker.detailed()
        beside = await worker.churned(way)
    assert all(stream.is_whole for stream in [*beside.streams, *beside.newcomers])
    for stream, answer in zip(beside.streams, alone, strict=True):
        assert compare(stream.answer, answer) is not Verdict.DIFFERENT
