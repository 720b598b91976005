"""A running stack as a test sees it: its address, its tenants' keys, its records, its processes."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import psycopg
import redis
from psycopg.rows import dict_row

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from tests.support.places import NO_TLS, ROOT
from tests.support.processes.children import children_of
from tests.support.signals.otlp_receiver import OtlpReceiver


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody who can sign in."""

    email: str
    password: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class LiveStack:
    """The stack of this run, the same code as `make up` in a folder and on ports of its own."""

    url: str
    # The same server by the name that people's browsers use.
    public_url: str
    model: str
    acme_key: str
    globex_key: str
    acme_owner: Person
    globex_owner: Person
    operator: Person
    database_url: str
    dispatch_redis_url: str
    var_folder: Path
    environ: dict[str, str] = field(repr=False)
    # What its gateway and worker send of requests, where somebody listens.
    traces: OtlpReceiver | None = field(repr=False, default=None)

    def manage(self, *arguments: str) -> None:
        """A command of manage.py, as an operator gives it in `make shell`."""
        self._managed(*arguments)

    def told_by(self, *arguments: str) -> dict[str, Any]:
        """What a command of manage.py tells with `--json`."""
        done = self._managed(*arguments, "--json", stdout=subprocess.PIPE)
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def made_by(self, script: str) -> dict[str, Any]:
        """What a script of `manage.py shell` prints as its last line, in JSON."""
        done = self._managed("shell", "-c", script, stdout=subprocess.PIPE)
        made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return made

    def _managed(self, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        environ = {**os.environ, **self.environ}
        environ.pop("DJANGO_SETTINGS_MODULE", None)  # those of tests, whose passwords are cheap
        return subprocess.run(command, check=True, env=environ, **options)

    @property
    def slots(self) -> int:
        return self.worker().slots

    def openai_client(self, api_key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=api_key, max_retries=0, timeout=60)

    def chat_body(self, question: str) -> dict[str, Any]:
        return {"model": self.model, "messages": [{"role": "user", "content": question}]}

    def ask(self, api_key: str, question: str, **fields: Any) -> httpx.Response:
        """One chat completion, not streamed; a refusal is an answer too."""
        return httpx.post(
            f"{self.url}/v1/chat/completions",
            json=self.chat_body(question) | fields,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=90,
            verify=NO_TLS,
        )

    def usage_rows(self, condition: str) -> list[dict[str, Any]]:
        """Usage records in PostgreSQL. `condition` is SQL from the test itself."""
        # Across the tenants' walls, as an operator.
        role = "-c role=penstock_operator"
        with psycopg.connect(self.database_url, row_factory=dict_row, options=role) as connection:
            query = f"SELECT * FROM inference_usagerecord WHERE {condition}"  # noqa: S608
            return connection.execute(query.encode()).fetchall()

    def worker(self) -> WorkerInfo:
        """The ready worker of the demo model, as it describes itself on the wire."""
        with redis.Redis.from_url(self.dispatch_redis_url) as client:
            described = client.hgetall(keys.pool_workers(self.model))
        infos = [codec.decode_worker_info(info) for info in described.values()]
        ready = [info for info in infos if info.state is WorkerState.READY]
        return max(ready, key=lambda info: info.started_at_ms)

    def running_in_engine(self) -> int:
        """Requests that vLLM itself holds, running or waiting, by its own metrics."""
        text = httpx.get(self.worker().metrics_url, timeout=10, verify=NO_TLS).text
        lines = [
            line
            for line in text.splitlines()
            if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))
        ]
        assert lines, "the worker's metrics hold vLLM's own families"
        return int(sum(float(line.rpartition(" ")[2]) for line in lines))

    def worker_process_tree(self) -> list[int]:
        """Process ids of the worker and all its descendants, parents first."""
        tree = [self.worker().pid]
        for pid in tree:
            tree += children_of(pid)
        return tree
