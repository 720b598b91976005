"""/docs/websocket: its frames are those that are sent, its clients are run as they are shown."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
from control_plane.documentation.pages import client_code
from django.test import Client
from django.utils.html import escape

from inference.websocket_api.frames import ChunkFrame, DoneFrame, ErrorFrame, NoticeFrame
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service
from tests.support.gateways.websocket import BODY, ask, connected

SENT = NoticeFrame | ChunkFrame | DoneFrame | ErrorFrame
PYTHON, JAVASCRIPT = "websocket_client.py", "websocket_client.js"
# The page has an address of the network, the gateway one of this machine.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-proxy-server",
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,"
    "BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessSendPreflights",
]
# Of the page in which the JavaScript runs; the gateway of the tests allows it.
ORIGIN = "http://app.example"


def test_anybody_reads_the_frames_and_the_clients() -> None:
    answer = Client().get("/docs/websocket")
    assert answer.status_code == 200
    page = answer.content.decode()
    for kind in ("request", "cancel", "notice", "chunk", "done", "error"):
        assert f'id="frame-{kind}"' in page
    for name in re.findall(r'href="/docs/websocket#([\w-]+)"', page):
        assert f'id="{name}"' in page
    for name in (PYTHON, JAVASCRIPT):
        assert escape(client_code(name)) in page


async def test_the_frames_are_those_that_are_sent(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a")
        await ask(socket, "wrong", body={**BODY, "temperature": 9})
        await socket.send("no JSON")
        texts = [str(await socket.recv())]
        while len([text for text in texts if '"chunk"' not in text]) < 3:
            texts.append(str(await socket.recv()))
    for text in texts:
        frame = msgspec.json.decode(text, type=SENT)
        assert msgspec.json.decode(msgspec.json.encode(frame)) == msgspec.json.decode(text)


async def test_the_python_client_streams_as_it_is_shown(
    service: Service, worker: ScriptedWorker, tmp_path: Path
) -> None:
    await worker.start()
    file = tmp_path / PYTHON
    file.write_text(client_code(PYTHON), encoding="utf-8")
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(file),
        env={
            **os.environ,
            "PENSTOCK_WEBSOCKET": f"{service.url.replace('http', 'ws', 1)}/ws/v1/stream",
            "PENSTOCK_API_KEY": service.alice,
            "PENSTOCK_MODEL": MODEL,
        },
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(program.communicate(), 30)
    assert program.returncode == 0
    assert said.decode().splitlines() == ["One two three", "stop, 6 tokens"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
async def test_the_javascript_client_streams_as_it_is_shown(
    service: Service, worker: ScriptedWorker
) -> None:
    from playwright.async_api import Route, async_playwright

    async def serve(route: Route) -> None:
        is_module = route.request.url.endswith(".js")
        kind = "text/javascript" if is_module else "text/html"
        body = client_code(JAVASCRIPT) if is_module else "<!doctype html><title>test</title>"
        await route.fulfill(status=200, content_type=kind, body=body)

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=FLAGS
        )
        page = await browser.new_page()
        noted: list[str] = []
        page.on("console", lambda message: noted.append(message.text))
        await page.route(f"{ORIGIN}/**", serve)
        await page.goto(f"{ORIGIN}/")
        # Only now: a worker that is not heard of while Chromium starts is taken for lost.
        await worker.start()
        async with service.client() as client:
            ticket = (await client.post("/v1/stream/tickets")).json()["ticket"]
        said = await page.evaluate(
            """async ([address, ticket, body]) => {
                const { stream } = await import("/client.js");
                let text = "";
                const done = await stream(address, ticket, body, (more) => (text += more));
                return [text, done.finish_reason];
            }""",
            [f"{service.url.replace('http', 'ws', 1)}/ws/v1/stream", ticket, BODY],
        )
        await browser.close()
    assert said == ["One two three", "stop"]
