"""OpenAI's own client against the whole control plane: gateway, gate and Django at one address."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, cast

import httpx
import openai
import pytest
from control_plane.blobs.gate import BoundedBodies, UploadGate
from control_plane.dispatcher import Dispatcher
from control_plane.edge import Edge
from control_plane.env import LOOPBACK
from control_plane.gateway import gateway_settings
from control_plane.status.endpoints import StatusEndpoints
from control_plane.status.health import Health
from control_plane.status.viewers import Viewers
from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application
from django.db import connections
from pytest_django import Settings
from redis.asyncio import Redis

from inference.openai_api.gateway import create_gateway
from inference.uploads.files import read_file
from inference.uploads.ids import parse_upload_id
from tenants.policy.writer import rebuild_policy
from tests.support.blobs.uploader import Uploader, a_new_upload, stored
from tests.support.gateways.service import serving
from tests.support.places import NO_TLS
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db(transaction=True)
DATA = os.urandom(5_000_000)
# The client's types know OpenAI's purposes alone; what it sends is up to the caller.
ADAPTER = cast(Literal["user_data"], "adapter")


@pytest.fixture
def written(dispatch_redis: Redis, alice: Uploader) -> None:
    """The policy snapshot, with Alice's key."""
    rebuild_policy()


@pytest.fixture
async def url(written: None, settings: Settings) -> AsyncIterator[str]:
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    gateway = create_gateway(gateway_settings(django_settings.ENV))
    django = BoundedBodies(get_asgi_application())
    application = Dispatcher(
        edge=Edge(),
        lifetime=gateway,
        gateway=gateway.http,
        status=StatusEndpoints(
            Health(dispatch_redis_url=django_settings.PENSTOCK_REDIS_URL),
            Viewers(networks=LOOPBACK),
        ),
        uploads=UploadGate(gateway.completions.admission.authenticate, django),
        django=django,
    )
    await gateway.startup()
    try:
        async with serving(application) as url:
            yield url
    finally:
        await gateway.shutdown()


@pytest.fixture
async def client(url: str, alice: Uploader) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=alice.key) as client:
        yield client


async def content(house: House, upload_id: str) -> bytes:
    def read() -> bytes:
        try:
            return b"".join(read_file(house.tenant, parse_upload_id(upload_id)))
        finally:
            connections.close_all()

    return await asyncio.to_thread(read)


async def test_the_client_sends_a_file_in_chunks(
    client: openai.AsyncOpenAI, acme: House, tmp_path: Path
) -> None:
    file = tmp_path / "adapter.zip"
    file.write_bytes(DATA)
    upload = await client.uploads.upload_file_chunked(
        file=file,
        mime_type="application/zip",
        purpose=ADAPTER,
        part_size=2_000_000,
        md5=hashlib.md5(DATA).hexdigest(),  # noqa: S324
    )
    assert upload.status == "completed"
    assert upload.file is not None
    assert (upload.file.filename, upload.file.bytes) == ("adapter.zip", len(DATA))
    assert await content(acme, upload.id) == DATA


async def test_the_client_creates_adds_and_cancels(client: openai.AsyncOpenAI) -> None:
    upload = await client.uploads.create(
        bytes=10, filename="a.tar", mime_type="application/x-tar", purpose=ADAPTER
    )
    assert (upload.object, upload.status) == ("upload", "pending")
    part = await client.uploads.parts.create(upload.id, data=b"0123456789")
    assert (part.object, part.upload_id) == ("upload.part", upload.id)
    assert (await client.uploads.cancel(upload.id)).status == "cancelled"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.uploads.complete(upload.id, part_ids=[part.id])
    assert refused.value.code == "upload_not_pending"
    with pytest.raises(openai.NotFoundError) as missing:
        await client.uploads.cancel("upload_" + "0" * 32)
    assert missing.value.code == "not_found"


async def test_a_stranger_is_refused_before_the_body_and_other_addresses_stay_the_gateways(
    url: str, alice: Uploader
) -> None:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS, timeout=10) as http:
        stranger = await http.post("/v1/uploads", json=a_new_upload(1))
        assert stranger.status_code == 401
        assert stranger.json()["error"]["code"] == "invalid_api_key"
        answer = await http.get("/v1/models", headers=alice.headers)
        assert answer.status_code == 200
        nothing = await http.get("/v1/uploadsx", headers=alice.headers)
        assert nothing.status_code == 404
        wrong = await http.delete("/v1/uploads", headers=alice.headers)
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
        assert wrong.headers["x-request-id"]


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(url: str, alice: Uploader) -> None:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS, timeout=10) as http:
        made = await http.post("/v1/uploads", json=a_new_upload(3_000_000), headers=alice.headers)
        path: Any = f"/v1/uploads/{made.json()['id']}"

        async def cut() -> AsyncIterator[bytes]:
            yield b'--b\r\nContent-Disposition: form-data; name="data"; filename="x"\r\n\r\n'
            yield bytes(1_000_000)
            raise ConnectionAbortedError

        headers = alice.headers | {
            "content-type": "multipart/form-data; boundary=b",
            "content-length": "3000200",
        }
        with pytest.raises(ConnectionAbortedError):
            await http.post(f"{path}/parts", content=cut(), headers=headers)
        known = (await http.get(path, headers=alice.headers)).json()
    assert (known["status"], known["parts"]) == ("pending", [])
    assert stored() == 0
