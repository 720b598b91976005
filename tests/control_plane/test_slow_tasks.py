"""What takes minutes has Celery workers of its own, as `make up` starts them: what rescues a lost
Redis does not wait for it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from control_plane.celery import app
from local_stack.programs import Program, celery_programs
from redis import Redis

from inference.redis_functions import LIBRARIES
from tests.support.places import ROOT
from tests.support.polling import eventually_sync

SLOW_QUEUE = "celery:slow"
SLOW_TASKS = 200


@contextmanager
def running(program: Program) -> Iterator[None]:
    paths = f"{ROOT}{os.pathsep}{ROOT / 'platform'}"
    process = subprocess.Popen(
        program.command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "DJANGO_SETTINGS_MODULE": "control_plane.settings"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "task",
    [
        "billing.request_payments",
        "billing.run_month_end",
        "inference.compute_digest",
        "inference.deal_out_days",
        "inference.retry_dead_letter",
        "tenants.check_everything",
    ],
)
def test_what_takes_minutes_waits_for_workers_of_its_own(task: str) -> None:
    assert app.amqp.router.route({}, task)["queue"].name == "slow"


@pytest.mark.rare
@pytest.mark.stack
@pytest.mark.django_db(transaction=True)
def test_a_redis_is_rescued_while_the_slow_ones_are_busy(
    dispatch_redis_url: str, redis_url: str, tmp_path: Path
) -> None:
    programs = [
        program
        for program in celery_programs(tmp_path / "schedule")
        if program.name in {"celery", "slow"}
    ]
    with (
        Redis.from_url(dispatch_redis_url) as dispatch,
        Redis.from_url(redis_url) as other,
        # Of its own: a test before may have shown Celery another broker, which it keeps.
        app.connection_for_write(redis_url) as broker,
        ExitStack() as stack,
    ):
        stack.callback(other.flushall)
        dispatch.function_flush()
        for _ in range(SLOW_TASKS):
            app.send_task("tenants.check_everything", connection=broker)
        assert other.llen(SLOW_QUEUE) == SLOW_TASKS
        for program in programs:
            stack.enter_context(running(program))
        eventually_sync(lambda: int(other.llen(SLOW_QUEUE)) < SLOW_TASKS, timeout_seconds=60)
        app.send_task("inference.restore_functions", connection=broker)
        eventually_sync(lambda: len(dispatch.function_list()) == len(LIBRARIES), timeout_seconds=30)
        assert int(other.llen(SLOW_QUEUE)) > 0, "they were to be busy meanwhile"
