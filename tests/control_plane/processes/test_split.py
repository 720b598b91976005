"""Gateway and management as compose starts them, behind compose's own proxy: real processes."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from redis.asyncio import Redis
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gpu_workers.protocol import keys
from inference.dispatch.worker_registry import WorkerRegistry
from tenants.policy.writer import rebuild_policy
from tests.support.blobs.uploader import a_new_upload
from tests.support.places import LOOPBACK, NO_TLS, ROOT, free_port
from tests.support.polling import eventually
from tests.support.servers import PEPPER
from tests.support.two_tenants import PASSWORD, House, TwoTenants

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.rare,
    pytest.mark.skipif(
        shutil.which("caddy") is None,
        reason="the distribution's caddy, the proxy of compose, is not installed",
    ),
]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
NEAR = "10.9.8.7"
TLS_PROXY = "127.0.0.2"
START_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Split:
    """Addresses of the edge and of the processes behind it, and what Acme's Alice has."""

    edge: str
    gateway: str
    management: str
    acme: House
    key: str

    def client(self, url: str = "", *, key: str = "", source: str = LOOPBACK) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=url or self.edge,
            headers={"authorization": f"Bearer {key}"} if key else {},
            transport=httpx.AsyncHTTPTransport(verify=NO_TLS, local_address=source),
            timeout=30,
        )

    def chat(self, **changes: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Count."}]
        return {"model": self.acme.model.name, "messages": messages, "max_tokens": 40, **changes}


@contextlib.asynccontextmanager
async def running(*command: str, **environ: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environ, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def command_of(service: str, port: int) -> list[str]:
    """Compose's own, but for where it listens."""
    command: list[str] = list(SERVICES[service]["command"])
    command[0] = sys.executable
    command[command.index("0.0.0.0")] = LOOPBACK
    command[command.index("8000")] = str(port)
    return command


def environ_of(service: str, **values: str) -> dict[str, str]:
    """Of what this run has, and of `values`, the variables that compose gives and no other."""
    paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}", "PATH": os.environ["PATH"]}
    given = os.environ | values
    return paths | {name: given[name] for name in SERVICES[service]["environment"] if name in given}


async def is_up(url: str) -> bool:
    async with httpx.AsyncClient(verify=NO_TLS) as client:
        with contextlib.suppress(httpx.TransportError):
            return (await client.get(f"{url}/healthz")).status_code == 200
    return False


@pytest.fixture
def key(dispatch_redis: Redis, houses: TwoTenants) -> str:
    """Alice's, which the policy snapshot has."""
    key = houses.acme.issue(scopes=["inference", "adapters:write", "usage:read"])
    rebuild_policy()
    return key


@pytest.fixture
async def split(
    dispatch_redis: Redis,
    dispatch_redis_url: str,
    gateway_redis_url: str,
    houses: TwoTenants,
    key: str,
    tmp_path: Path,
) -> AsyncIterator[Split]:
    acme = houses.acme
    ports = {name: free_port() for name in ("edge", "gateway", "management")}
    urls = {name: f"http://{LOOPBACK}:{port}" for name, port in ports.items()}
    common = {
        "PENSTOCK_GATEWAY_REDIS_URL": gateway_redis_url,
        "PENSTOCK_API_KEY_PEPPER": PEPPER.decode(),
        "PENSTOCK_PUBLIC_URL": urls["edge"],
        "PENSTOCK_TRUSTED_PROXIES": f"{LOOPBACK} {TLS_PROXY}",
        "PENSTOCK_METRICS_NETWORKS": NEAR,
        "PENSTOCK_ALLOW_CLEAR_TEXT": "1",
        "PENSTOCK_BLOB_STORE_URL": f"file:{tmp_path / 'blobs'}",
    }
    pool = acme.model.pool.name
    worker = [sys.executable, "-m", "gpu_workers", "--engine", "sim", "--model"]
    worker += [acme.model.name, "--pool", pool, "--name", "sim", "--metrics-port", "0"]
    worker += ["--sim-step-ms", "30"]
    outbox = {
        "PENSTOCK_DISPATCH_REDIS_URL": dispatch_redis_url,
        "PENSTOCK_WORKER_OUTBOX": str(tmp_path / "outbox"),
    }
    proxy = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PENSTOCK_TRUSTED_PROXIES": TLS_PROXY,
        "PENSTOCK_EDGE_PORT": str(ports["edge"]),
        "PENSTOCK_EDGE_GATEWAY": f"{LOOPBACK} {ports['gateway']}",
        "PENSTOCK_EDGE_MANAGEMENT": f"{LOOPBACK} {ports['management']}",
    }
    # Management's settings are the tests' own, with a cheap hash.
    settings = {"DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"]}
    async with contextlib.AsyncExitStack() as stack:
        for service, more in (("gateway", {}), ("management", settings)):
            environ = environ_of(service, **common)
            command = command_of(service, ports[service])
            await stack.enter_async_context(running(*command, **environ, **more))
        caddyfile = str(ROOT / "platform/edge/Caddyfile")
        caddy = ["caddy", "run", "--config", caddyfile, "--adapter", "caddyfile"]
        await stack.enter_async_context(running(*caddy, **proxy))
        await stack.enter_async_context(running(*worker, **(os.environ | outbox)))
        for url in (urls["gateway"], urls["management"], urls["edge"]):
            await eventually(lambda url=url: is_up(url), START_SECONDS)  # type: ignore[misc]
        await eventually(lambda: WorkerRegistry(dispatch_redis).is_ready(pool), START_SECONDS)
        yield Split(**urls, acme=acme, key=key)


async def test_each_plane_answers_what_is_its_own_behind_the_proxy(
    split: Split, dispatch_redis: Redis
) -> None:
    await _streams_as_it_is_generated(split)
    await _websocket(split)
    await _management(split)
    await _uploads(split)
    await _wrong_process(split)
    await _idle_connections_stay_open(split)
    await _nobody_else_says_who_is_calling(split)
    await _one_who_leaves_is_cancelled(split, dispatch_redis)


async def _streams_as_it_is_generated(split: Split) -> None:
    async with (
        split.client(key=split.key) as client,
        client.stream("POST", "/v1/chat/completions", json=split.chat(stream=True)) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        came = [(time.monotonic(), line) async for line in answer.aiter_lines() if line]
    assert came[-1][1] == "data: [DONE]"
    # 40 tokens, 30 ms each: a proxy that gathers them would send all at once.
    assert came[-1][0] - came[0][0] > 0.5


async def _websocket(split: Split) -> None:
    address = f"{split.edge.replace('http', 'ws', 1)}/ws/v1/stream"
    with pytest.raises(InvalidStatus):
        async with connect(address):
            pass
    async with connect(
        address, additional_headers={"Authorization": f"Bearer {split.key}"}
    ) as socket:
        frame = {"type": "request", "id": "a", "api": "chat.completions"}
        await socket.send(json.dumps(frame | {"body": split.chat(stream=True)}))
        kinds: list[str] = []
        while not kinds or kinds[-1] == "chunk":
            kinds.append(json.loads(await socket.recv())["type"])
    assert len(kinds) > 2 and kinds[-1] == "done", kinds


async def _management(split: Split) -> None:
    person = {"email": split.acme.people["owner"].email, "password": PASSWORD}
    async with split.client() as client:
        page = await client.get("/account/login/")
        assert page.status_code == 200 and "<form" in page.text
        token = {"x-csrftoken": (await client.get("/api/v1/session")).json()["csrf_token"]}
        signed_in = await client.post("/api/v1/session", json=person, headers=token)
        assert signed_in.status_code in (200, 201), signed_in.text
        exported = await client.get(f"/t/{split.acme.tenant.id}/usage.csv")
        assert exported.status_code == 200 and exported.headers["content-type"].startswith(
            "text/csv"
        )
    async with split.client(key=split.key) as client:
        figures = await client.get(f"/api/v1/tenants/{split.acme.tenant.id}/metrics")
        assert figures.status_code == 200, figures.text


async def _uploads(split: Split) -> None:
    async with split.client(key=split.key) as client:
        begun = await client.post("/v1/uploads", json=a_new_upload(2_000_000))
        assert begun.status_code == 200, begun.text
        part = await client.post(
            f"/v1/uploads/{begun.json()['id']}/parts", files={"data": os.urandom(2_000_000)}
        )
        assert part.status_code == 200, part.text
    async with split.client(key="wrong") as client:
        refused = await client.post("/v1/uploads", json=a_new_upload(2_000_000))
        assert refused.status_code == 401


async def _wrong_process(split: Split) -> None:
    for url, path, plane in (
        (split.gateway, "/account/login/", "management"),
        (split.gateway, "/v1/uploads", "management"),
        (split.management, "/v1/models", "gateway"),
    ):
        async with split.client(url) as client:
            answer = await client.get(path)
        assert answer.status_code == 404
        assert f"The {plane} process serves this path" in answer.json()["error"]["message"]
    with pytest.raises(InvalidStatus):
        async with connect(f"{split.management.replace('http', 'ws', 1)}/ws/v1/stream"):
            pass
    async with split.client() as client:
        assert "Unknown endpoint" in (await client.get("/v1/nowhere")).text
        for path in ("/nowhere", "/V1/models", "/v1nowhere"):
            assert (await client.get(path)).status_code == 404


async def _idle_connections_stay_open(split: Split) -> None:
    """Longer than a proxy before the edge keeps its own, and it is told for how long."""
    for path in ("/v1/models", "/account/login/"):
        async with split.client() as client:
            told = (await client.get(path)).headers.get_list("keep-alive")
        assert told == ["timeout=75"]


async def _nobody_else_says_who_is_calling(split: Split) -> None:
    """Whoever is near sees the details of /readyz."""
    forged = {"x-forwarded-for": NEAR, "x-real-ip": NEAR, "forwarded": f"for={NEAR}"}
    for source, is_believed in ((LOOPBACK, False), ("127.0.0.3", False), (TLS_PROXY, True)):
        async with split.client(source=source) as client:
            told = (await client.get("/readyz", headers=forged)).json()
        assert ("parts" in told) is is_believed


async def _one_who_leaves_is_cancelled(split: Split, redis: Redis) -> None:
    open_requests = keys.pool_open_requests(split.acme.model.pool.name)

    async def none_is_open() -> bool:
        return not await redis.zcard(open_requests)

    await eventually(none_is_open)
    # 400 tokens would take 12 s.
    chat = split.chat(stream=True, max_tokens=400)
    async with (
        split.client(key=split.key) as client,
        client.stream("POST", "/v1/chat/completions", json=chat) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        await anext(answer.aiter_lines())
        assert not await none_is_open()
    await eventually(none_is_open)
