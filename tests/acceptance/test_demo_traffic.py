"""`make demo-traffic`, a minute of it, on the live stack."""

import functools
import json
from collections.abc import Mapping

import httpx
import pytest
from local_stack.demo_traffic.asking import ANSWERED, LEFT, UNREACHED
from local_stack.demo_traffic.cast import PROGRAMS
from local_stack.demo_traffic.run import KEYS_FILE, Run
from local_stack.demo_traffic.workers import SimulatedWorker

from gpu_workers.config import read_env_file
from tests.support.places import NO_TLS, ROOT
from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]

MISTAKES = {"model_not_found", "unknown_field", "invalid_request", "invalid_api_key"}


def test_a_minute_of_traffic_leaves_something_to_look_at(live_stack: LiveStack) -> None:
    said: list[str] = []
    run = traffic(live_stack, said, minutes=1)
    run.play()
    assert run.outcomes[ANSWERED] > 100
    assert run.outcomes[LEFT] > 0
    assert run.outcomes[UNREACHED] == 0, run.summary()
    refused = set(run.outcomes) - {ANSWERED, LEFT}
    assert refused >= MISTAKES
    assert any("requests_per_minute" in code for code in refused), refused  # the trial's
    assert [line for line in said if "min:" not in line] == [
        "A slow worker joins the pool sim.",
        "The slow worker has left.",
        "Globex's nightly reports flood the pool sim.",
        "The flood is over.",
    ]
    for key in kept_keys(live_stack).values():
        eventually_sync(functools.partial(has_asked, live_stack, key))


def test_the_next_run_goes_on_with_the_same_keys(live_stack: LiveStack) -> None:
    traffic(live_stack, [], minutes=0.1).play()
    kept = kept_keys(live_stack)
    traffic(live_stack, [], minutes=0.1).play()
    assert kept_keys(live_stack) == kept
    assert set(kept) == {program.name for program in PROGRAMS}
    mode = (live_stack.var_folder / KEYS_FILE).stat().st_mode
    assert mode & 0o077 == 0


def traffic(stack: LiveStack, said: list[str], *, minutes: float) -> Run:
    def start_worker(name: str, settings: Mapping[str, str]) -> SimulatedWorker:
        return SimulatedWorker(ROOT, stack.var_folder, name, settings, stack.environ)

    demo_env = read_env_file(stack.var_folder / "demo.env")
    return Run(stack.var_folder, demo_env, start_worker, minutes=minutes, seed=1, say=said.append)


def kept_keys(stack: LiveStack) -> dict[str, str]:
    kept: dict[str, str] = json.loads((stack.var_folder / KEYS_FILE).read_text())
    return kept


def has_asked(stack: LiveStack, key: str) -> bool:
    bearer = {"Authorization": f"Bearer {key}"}
    told = httpx.get(f"{stack.url}/api/v1/me", headers=bearer, verify=NO_TLS).json()
    return bool(stack.usage_rows(f"api_key_id = '{told['id']}' LIMIT 1"))
