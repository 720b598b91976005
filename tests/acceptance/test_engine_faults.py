"""kill -9 of every process of the worker in turn: no orphan, back without help, nothing silent."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.polling import eventually_sync
from tests.support.processes.children import children_of
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]


def _main(tree: list[int]) -> int:
    return tree[0]


def _engine_core(tree: list[int]) -> int:
    return next(pid for pid in tree if "EngineCore" in _title(pid))


def test_an_engine_of_one_device_is_one_process(live_stack: LiveStack) -> None:
    """A second one for the model would spin beside it while requests run."""
    core = _engine_core(live_stack.worker_process_tree())
    assert not any("Worker" in _title(pid) for pid in children_of(core))


# Each costs the start of another engine.
@pytest.mark.parametrize("victim", [_main, pytest.param(_engine_core, marks=pytest.mark.rare)])
def test_a_killed_process_ends_what_cannot_go_on_typed_and_leaves_no_orphan(
    live_stack: LiveStack, victim: Callable[[list[int]], int]
) -> None:
    tree = live_stack.worker_process_tree()
    assert len(tree) >= 3
    events: list[str] = []
    body = live_stack.chat_body("Tell me a long story about Penstock.") | {
        "max_tokens": 1900,
        "ignore_eos": True,
        "stream": True,
        "stop": "no such text",  # a stop string keeps another worker from going on with it
    }
    with httpx.stream(
        "POST",
        f"{live_stack.url}/v1/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {live_stack.acme_key}"},
        timeout=60,
    ) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            events.append(line)
            if len(events) == 5:
                os.kill(victim(tree), signal.SIGKILL)
    assert '"error"' in events[-1], events[-1]
    assert '"worker_lost"' in events[-1] or '"engine_failed"' in events[-1]

    eventually_sync(lambda: not any(_is_alive(pid) for pid in tree), timeout_seconds=20)
    after = eventually_sync(
        lambda: ok if (ok := live_stack.ask(live_stack.globex_key, "Hi")).is_success else None,
        timeout_seconds=300,  # an engine starts: 25 s quiet, ten times that at load
    )
    assert after is not None
    assert after.json()["choices"][0]["message"]["content"]
    request_id = answer.headers["x-request-id"]
    rows = eventually_sync(
        lambda: live_stack.usage_rows(f"request_id = '{request_id}'"), timeout_seconds=15
    )
    assert [row["outcome"] for row in rows] == ["failed"]
    assert rows[0]["completion_tokens"] > 0


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
