"""What `make demo-traffic` does where it cannot begin, and how its hour goes."""

from pathlib import Path

import pytest
from local_stack.demo_traffic.course import FLOOD, FLOODED, SLOW_WORKER, rate
from local_stack.demo_traffic.run import Run
from local_stack.demo_traffic.workers import SimulatedWorker
from local_stack.services import ServiceError

from tests.support.places import free_port

MOMENTS = [number / 1000 for number in range(1000)]


def test_without_a_running_stack_it_says_what_to_do(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    demo_env = {"PENSTOCK_URL": url, "PENSTOCK_MODEL": "penstock-demo"}
    for name in ("ACME", "GLOBEX"):
        demo_env |= {
            f"PENSTOCK_{name}_EMAIL": "owner@example.org",
            f"PENSTOCK_{name}_PASSWORD": "unused",
            f"PENSTOCK_{name}_KEY": "unused",
        }

    def start_worker(*_: object) -> SimulatedWorker:
        raise AssertionError("no worker joins a stack that is not up")

    run = Run(tmp_path, demo_env, start_worker, minutes=1, seed=1, say=lambda _: None)
    with pytest.raises(ServiceError, match=r"does not answer at .*: run `make up` first"):
        run.play()


def test_who_floods_asks_many_times_more_for_a_while_and_nobody_else_does() -> None:
    for moment in MOMENTS:
        usual = rate(moment, phase=0.25, floods=False)
        assert 0.39 < usual < 1.61
        expected = usual * (FLOOD if FLOODED.covers(moment) else 1.0)
        assert rate(moment, phase=0.25, floods=True) == pytest.approx(expected)


def test_the_slow_worker_has_left_before_the_flood_begins() -> None:
    assert 0.0 < SLOW_WORKER.begins < SLOW_WORKER.ends < FLOODED.begins < FLOODED.ends < 1.0
