from datetime import UTC, datetime, timedelta

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.figures import EngineFigures, GpuFigures
from gpu_workers.protocol.messages import WorkerState
from inference import tasks
from inference.models import Worker
from tests.support.fleet import worker_info

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_what_a_worker_says_replaces_what_it_said_before() -> None:
    Worker.objects.sync([worker_info()], NOW)
    Worker.objects.sync([worker_info(running=5, state=WorkerState.DRAINING)], NOW)
    worker = Worker.objects.get()
    assert (worker.running, worker.state, worker.last_seen_at) == (5, "draining", NOW)


def test_a_worker_that_is_silent_stays_on_record_and_is_not_live() -> None:
    Worker.objects.sync([worker_info()], NOW)
    later = NOW + timedelta(minutes=1)
    Worker.objects.sync([worker_info(worker_id="gpu-2#bb", name="gpu-2")], later)
    live = {worker.name: worker.is_live(later) for worker in Worker.objects.all()}
    assert live == {"gpu-1": False, "gpu-2": True}


def test_a_worker_long_gone_is_forgotten() -> None:
    Worker.objects.sync([worker_info()], NOW)
    Worker.objects.sync([], NOW + timedelta(days=8))
    assert not Worker.objects.exists()


def test_a_worker_that_leaves_in_order_is_not_lost_and_one_that_falls_silent_is() -> None:
    drained, killed = worker_info(), worker_info(worker_id="gpu-2#bb", name="gpu-2")
    Worker.objects.sync([drained, killed], NOW)
    Worker.objects.sync([], NOW + timedelta(seconds=5), silent=[killed.worker_id])
    later = NOW + timedelta(seconds=40)
    Worker.objects.sync([], later, silent=[killed.worker_id])
    assert [worker.name for worker in Worker.objects.lost(NOW, later)] == ["gpu-2"]
    assert Worker.objects.get(name="gpu-1").has_left


def test_a_lost_worker_whose_successor_runs_is_no_longer_missed() -> None:
    Worker.objects.sync([worker_info()], NOW)
    later = NOW + timedelta(seconds=40)
    successor = worker_info(worker_id="gpu-1#bb", started_at_ms=1_790_000_050_000)
    Worker.objects.sync([successor], later, silent=["gpu-1#aa"])
    assert Worker.objects.lost(NOW, later) == []


def test_a_worker_that_redis_itself_has_lost_has_not_left_once_it_is_back() -> None:
    Worker.objects.sync([worker_info()], NOW)
    Worker.objects.sync([], NOW + timedelta(seconds=5))
    Worker.objects.sync([worker_info()], NOW + timedelta(seconds=10))
    assert not Worker.objects.get().has_left


def test_what_a_worker_does_not_tell_is_unknown_on_record() -> None:
    Worker.objects.sync([worker_info()], NOW)
    worker = Worker.objects.get()
    assert worker.figures is worker.gpus is None
    told = worker_info(
        figures=EngineFigures(kv_used=0.5),
        gpus=[GpuFigures(uuid="GPU-1", name="H100", index=0, celsius=61)],
        problem="its outbox takes nothing: full",
        warning="GPU 0 is throttled: heat",
    )
    Worker.objects.sync([told], NOW)
    worker = Worker.objects.get()
    assert worker.figures is not None
    assert (worker.figures["kv_used"], worker.figures["step_us"]) == (0.5, None)
    assert worker.gpus is not None
    assert worker.gpus[0]["celsius"] == 61
    assert (worker.problem, worker.warning) == (told.problem, told.warning)


def test_the_task_copies_the_live_workers_of_the_registry(dispatch_redis_url: str) -> None:
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        redis.sadd(keys.known_pools(), "fleet-tests")
        seconds, microseconds = redis.time()
        now_ms = seconds * 1000 + microseconds // 1000
        for name, beat in (("live", now_ms), ("dead", now_ms - 60_000)):
            info = worker_info(worker_id=f"{name}#1", name=name)
            redis.hset(keys.pool_workers("fleet-tests"), info.worker_id, encode(info))
            redis.zadd(keys.pool_heartbeats("fleet-tests"), {info.worker_id: beat})
    assert tasks.copy_workers() == 1
    assert Worker.objects.get().name == "live"
