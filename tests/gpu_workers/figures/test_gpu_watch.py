"""A worker with GPUs; `FakeNvml` stands in for their driver."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pynvml
import pytest
import structlog
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from gpu_workers.engine import EngineDescription
from gpu_workers.figures.gpu_watch import GpuWatch
from gpu_workers.figures.nvml import NoGpu, Nvml
from gpu_workers.protocol.messages import Outcome, WorkerInfo, WorkerState
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.gpus.fake_nvml import FakeGpu, FakeNvml
from tests.support.polling import eventually
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import RunningWorker, Steps, running_worker
from tests.support.workers.worker_process import published

ENDLESS = {"messages": [{"role": "user", "content": "Go on for ever."}], "ignore_eos": True}


class OnGpu(SimEngine):
    async def start(self) -> EngineDescription:
        return replace(await super().start(), gpus=1)


@asynccontextmanager
async def worker_on(
    url: str, *gpus: FakeGpu, steps: Steps | None = None
) -> AsyncIterator[tuple[RunningWorker, FakeNvml]]:
    bindings = FakeNvml(*gpus)
    watch = GpuWatch(lambda: Nvml(bindings), every_seconds=0.01)
    engine = OnGpu(sleep=steps or Steps())
    async with running_worker(url, engine, gpus=watch) as running:
        await running.ready()
        yield running, bindings


def shown(family: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"penstock_gpu_{family}", labels)


async def told(redis: Redis) -> WorkerInfo:
    info = await published(redis)
    assert info is not None
    return info


async def test_a_worker_tells_of_its_own_gpus(dispatch_redis: Redis, sim_redis_url: str) -> None:
    gpus = FakeGpu(index=0, uuid="GPU-0"), FakeGpu(index=1, uuid="GPU-1")
    async with worker_on(sim_redis_url, *gpus) as (_, bindings):
        await eventually(lambda: _has_gpus(dispatch_redis))
        (gpu,) = (await told(dispatch_redis)).gpus or []
        assert (gpu.uuid, gpu.celsius) == ("GPU-0", 61)
        assert (await told(dispatch_redis)).warning == ""
        labels = {"model": (await told(dispatch_redis)).model, "gpu": "0"}
        assert shown("temperature_celsius", **labels) == 61
        assert shown("throttled", reason="heat", **labels) == 0
    assert not bindings.is_open


async def _has_gpus(redis: Redis) -> bool:
    return bool((await told(redis)).gpus)


async def test_an_error_that_a_gpu_could_not_correct_drains_the_worker_and_loses_no_request(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    gpu, steps = FakeGpu(index=0, uuid="GPU-0", uncorrected=4), Steps(granted=1)
    async with worker_on(sim_redis_url, gpu, steps=steps) as (running, _):
        await eventually(lambda: _has_gpus(dispatch_redis))
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=6))
        await gateway.delta_of(request_id)
        assert running.worker.state is WorkerState.READY, "what was there before is no news"
        gpu.uncorrected += 2
        await eventually(lambda: _says_why(dispatch_redis))
        info = await told(dispatch_redis)
        assert info.state is WorkerState.DRAINING
        assert info.problem == "GPU 0 (GPU-0) has 2 new uncorrectable memory errors"
        steps.grant(20)
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
        assert await running.exit_code() is Exit.DRAINED


async def _says_why(redis: Redis) -> bool:
    return bool((await told(redis)).problem)


async def test_a_throttled_gpu_is_told_of_and_serves(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    gpu = FakeGpu(index=0, uuid="GPU-0", reasons=0x08 | 0x40)
    async with worker_on(sim_redis_url, gpu, steps=Steps(granted=50)) as (_, _):
        await eventually(lambda: _warns(dispatch_redis))
        info = await told(dispatch_redis)
        assert info.warning == "GPU 0 is throttled: hardware slowdown, heat (hardware)"
        assert info.problem == ""
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=6))
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED


async def _warns(redis: Redis) -> bool:
    return bool((await told(redis)).warning)


async def test_gpus_that_cannot_be_read_are_unknown_until_they_can(
    dispatch_redis: Redis, sim_redis_url: str
) -> None:
    async with worker_on(sim_redis_url, FakeGpu(index=0, uuid="GPU-0")) as (running, bindings):
        await eventually(lambda: _has_gpus(dispatch_redis))
        bindings.problem = pynvml.NVML_ERROR_GPU_IS_LOST
        await eventually(lambda: _warns(dispatch_redis))
        info = await told(dispatch_redis)
        assert info.gpus is None
        assert info.warning.startswith("its GPUs cannot be read: ")
        bindings.problem = 0
        await eventually(lambda: _has_gpus(dispatch_redis))
        assert running.worker.state is WorkerState.READY


async def test_a_worker_without_a_driver_says_so_once_and_reports_no_gpu() -> None:
    def none() -> Nvml:
        raise NoGpu("NVML Shared Library Not Found")

    watch = GpuWatch(none)
    with structlog.testing.capture_logs() as logged:
        await watch.run(1, on_reading=lambda _: None, on_failure=pytest.fail)
    assert [each["reason"] for each in logged] == ["NVML Shared Library Not Found"]
    assert watch.figures == []


async def test_an_engine_that_uses_no_gpu_asks_no_driver() -> None:
    def never() -> Nvml:
        pytest.fail("asked")

    watch = GpuWatch(never)
    await watch.run(0, on_reading=lambda _: pytest.fail(), on_failure=pytest.fail)
    assert watch.figures == []
