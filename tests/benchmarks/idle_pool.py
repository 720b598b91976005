"""What Penstock adds to the time to first token where nobody else is there.

    python -m tests.benchmarks.idle_pool [--engine vllm|sim] [--requests 400]

A gateway's use case here, one worker in a process of its own, as in production, one request at a
time. Added is the time from the call of the use case to its first output, less that from the call
of the worker's serving object to its first output, of the same request: reserve, enqueue, claim
and the return together.
"""

import argparse
import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from statistics import quantiles
from time import monotonic

import uvloop
from redis.asyncio import Redis

from gpu_workers.protocol.messages import Api
from gpu_workers.protocol.policy import Caller, Scope
from inference.lifecycle.completions import Completions, GatewaySettings
from inference.lifecycle.inference_request import InferenceRequest
from inference.redis_functions import LIBRARIES, library_text
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.service import PEPPER, Snapshot, a_tier
from tests.support.places import ROOT
from tests.support.polling import eventually
from tests.support.servers import servers

WARM_UP, TOKENS = 50, 8
P50_BAR_MS, P99_BAR_MS = 3.0, 8.0
BODY = b'{"messages":[{"role":"user","content":"What is Penstock?"}],"stream":true,"max_tokens":8}'
PYTHONS = {"sim": Path(sys.executable), "vllm": ROOT / ".venv-engine" / "bin" / "python"}


async def start_worker(engine: str, url: str) -> Process:
    command = ["-m", "tests.benchmarks.timed_worker", "--engine", engine, "--model", MODEL]
    command += ["--pool", POOL, "--name", "idle", "--metrics-port", "0", "--log-level", "error"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_DISPATCH_REDIS_URL": url}
    return await asyncio.create_subprocess_exec(
        PYTHONS[engine], *command, cwd=ROOT, env=environ, stdout=PIPE
    )


async def ask(completions: Completions, caller: Caller) -> tuple[str, float]:
    """The request's id, and its time to first output in seconds."""
    request = InferenceRequest(
        api=Api.CHAT_COMPLETIONS,
        model=MODEL,
        stream=True,
        body=BODY,
        output_tokens=TOKENS,
        output_param="max_tokens",
        prompt_bytes=20,
        prompt_param="messages",
        prompt_bound=20,
    )
    began = monotonic()
    generation = await completions.begin(caller, request)
    first = None
    while True:
        progress = await generation.next()
        if progress.chunks and first is None:
            first = monotonic() - began
        if progress.end is not None:
            break
    if first is None:
        raise RuntimeError(f"expected output, the request ended with none: {progress.end}")
    return generation.request_id, first


async def engine_times(worker: Process) -> tuple[str, float]:
    """The next line of the worker: a request's id, and its time in the serving object."""
    assert worker.stdout is not None
    while True:
        words = (await worker.stdout.readline()).decode().split()
        if not words:
            raise RuntimeError("expected the worker to run on, but it has ended")
        if len(words) == 3 and words[1][:1].isdigit():
            return words[0], float(words[2]) - float(words[1])


async def measure(engine: str, requests: int) -> list[float]:
    """Milliseconds added to each request."""
    url = servers().dispatch_redis.url
    async with Redis.from_url(url, socket_timeout=None) as redis:
        await redis.flushall()
        for library in LIBRARIES:
            await redis.function_load(library_text(library), replace=True)
        snapshot = Snapshot(redis)
        tier = a_tier(requests_per_minute=10**6, max_concurrent_requests=10**6)
        key = await snapshot.add_key("Acme", tier=tier)
        await snapshot.add_model(MODEL)
        completions = Completions(
            GatewaySettings(dispatch_redis_url=url, api_key_pepper=PEPPER, cache_salt_secret=b"s")
        )
        await completions.start()
        worker = await start_worker(engine, url)
        try:
            await eventually(lambda: completions.workers.is_ready(POOL), 180)
            caller = await completions.admission.authenticate(
                f"Bearer {key}", address=None, scope=Scope.INFERENCE
            )
            added = []
            for number in range(WARM_UP + requests):
                request_id, whole = await ask(completions, caller)
                same_id, inside = await engine_times(worker)
                if request_id != same_id:
                    raise RuntimeError(f"expected the times of {request_id}, got {same_id}")
                if number >= WARM_UP:
                    added.append((whole - inside) * 1000)
        finally:
            worker.terminate()
            await completions.stop()
            await worker.wait()
    return added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=sorted(PYTHONS), default="vllm")
    parser.add_argument("--requests", type=int, default=400)
    arguments = parser.parse_args()
    added = uvloop.run(measure(arguments.engine, arguments.requests))
    points = quantiles(added, n=100, method="inclusive")
    print(f"added to the time to first token on an idle pool, {len(added)} requests")
    for name, value, bar in (("p50", points[49], P50_BAR_MS), ("p99", points[98], P99_BAR_MS)):
        verdict = "met" if value <= bar else "NOT met"
        print(f"  {name} {value:6.2f} ms   bar {bar:g} ms   {verdict}")


if __name__ == "__main__":
    main()
