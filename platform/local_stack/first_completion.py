"""Waits until a completion has really come back through the whole path."""

import http.client
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerState
from gpu_workers.protocol.redis_url import connect
from local_stack.demo_adapters import TENANTS, DemoAdapter
from local_stack.installation.progress import Progress
from local_stack.services import LOOPBACK, ServiceError
from local_stack.supervisor import ProgramState, Supervisor

TIMEOUT_SECONDS = 900.0
ATTEMPT_SECONDS = 60.0
PAUSE_SECONDS = 0.2
STARTS_BEFORE_GIVING_UP = 3
LOG_LINES = 12


class FirstCompletion:
    """Asks as Acme would, once the web process answers and a worker of ours is ready."""

    def __init__(
        self, supervisor: Supervisor, demo_env: Mapping[str, str], *, web_port: int, log: Path
    ) -> None:
        self._supervisor = supervisor
        self._demo_env = demo_env
        self._web_port = web_port
        self._log = log
        self._pids: defaultdict[str, set[int]] = defaultdict(set)
        self._began = time.monotonic()

    def wait(self, progress: Progress) -> None:
        """Wait until a completion has come back. Raises `ServiceError` with the last lines of a
        failing log, or when the time is over."""
        self._until(lambda: is_healthy(self._web_port), "the web process", progress)
        self._until(self.has_ready_worker, "the worker to load the model", progress)
        self._until(self._completes, "the first completion", progress)

    def wait_for_adapters(self, root: Path, progress: Progress) -> None:
        """Put the demo's adapters in, and wait until they answer. Raises as `wait` does, and where
        one is refused."""
        for tenant in TENANTS:
            adapter = DemoAdapter(root, self._demo_env, tenant)
            try:
                if adapter.put_in():
                    self._until(adapter.answers, "the demo's adapters", progress)
            finally:
                adapter.close()

    def has_ready_worker(self) -> bool:
        """Return whether a worker of this start is ready: an earlier one may still be on record."""
        pids = {state.pid for state in self._supervisor.states().values()}
        url = self._demo_env["PENSTOCK_DISPATCH_REDIS_URL"]
        pool = self._demo_env["PENSTOCK_MODEL"]
        try:
            with connect(url, socket_timeout=5) as client:
                described = client.hgetall(keys.pool_workers(pool))
        except redis.RedisError:
            return False
        infos = [codec.decode_worker_info(info) for info in described.values()]
        return any(info.state is WorkerState.READY and info.pid in pids for info in infos)

    def _until(self, is_reached: Callable[[], bool], what: str, progress: Progress) -> None:
        while not is_reached():
            now = time.monotonic()
            self._look_for_crashes()
            if now - self._began > TIMEOUT_SECONDS:
                raise ServiceError(
                    f"Gave up waiting for {what} after {TIMEOUT_SECONDS:.0f} s: see {self._log}."
                )
            progress.show(f"Waiting for {what}, {now - self._began:.0f} s.")
            time.sleep(PAUSE_SECONDS)

    def _completes(self) -> bool:
        body = {
            "model": self._demo_env["PENSTOCK_MODEL"],
            "messages": [{"role": "user", "content": "What is Penstock?"}],
            "max_tokens": 8,
        }
        headers = {
            "Authorization": f"Bearer {self._demo_env['PENSTOCK_ACME_KEY']}",
            "Content-Type": "application/json",
        }
        status, answer = _ask(
            self._web_port, "POST", "/v1/chat/completions", json.dumps(body), headers
        )
        if status == 200:
            return bool(json.loads(answer)["usage"]["completion_tokens"] > 0)
        if 400 <= status < 500 and status != 429:
            raise ServiceError(f"The first completion was refused with {status}: {answer.strip()}")
        return False

    def _look_for_crashes(self) -> None:
        for state in self._supervisor.states().values():
            if state.pid:
                self._pids[state.name].add(state.pid)
            if len(self._pids[state.name]) > STARTS_BEFORE_GIVING_UP or state.state == "FATAL":
                raise ServiceError(
                    f"{state.name} keeps exiting; the last lines of "
                    f"{self._log / state.name}.log:\n{self._last_lines(state)}"
                )

    def _last_lines(self, state: ProgramState) -> str:
        lines = (self._log / f"{state.name}.log").read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES:])


def is_healthy(web_port: int) -> bool:
    """Return whether the web process answers."""
    return _ask(web_port, "GET", "/healthz")[0] == 200


def _ask(
    port: int,
    method: str,
    path: str,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Return status and body; status 0 where nobody answers."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ATTEMPT_SECONDS)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()
