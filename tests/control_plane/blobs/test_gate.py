"""What stands before Django's uploads: nothing of a body is read for whoever may not send one, and
no more of it than may come."""

import asyncio
import errno
from collections.abc import AsyncIterator
from typing import Any

import pytest
from control_plane.blobs import gate
from control_plane.blobs.gate import MAX_BODY_BYTES, BoundedBodies, UploadGate
from redis.exceptions import ConnectionError as RedisAway

from gpu_workers.protocol.policy import Caller, Scope
from inference.errors import Unauthenticated
from tests.support.gateways.callers import a_caller
from tests.support.polling import eventually

Messages = list[dict[str, Any]]


class Django:
    """Reads a whole body before it answers, as Django does."""

    def __init__(self) -> None:
        self.received = 0
        self.calls = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        while True:
            message = await receive()
            self.received += len(message.get("body", b""))
            if not message.get("more_body", False):
                break
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Keys:
    """Knows one key."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.error: Exception | None = None
        self.asked: list[tuple[str | None, str | None, Scope | None]] = []

    async def __call__(
        self, authorization: str | None, *, address: str | None, scope: Scope | None
    ) -> Caller:
        self.asked.append((authorization, address, scope))
        if self.error is not None:
            raise self.error
        if authorization != "Bearer key":
            raise Unauthenticated("no")
        return self.caller


@pytest.fixture
def known() -> Keys:
    return Keys(a_caller("acme"))


@pytest.fixture
def django() -> Django:
    return Django()


async def ask(
    application: Any,
    body: AsyncIterator[bytes] | bytes = b"",
    *,
    address: str = "127.0.0.1",
    **headers: str,
) -> tuple[int, int]:
    """The status, and how many messages of the body were asked for."""
    given = {"authorization": "Bearer key"} | headers
    pieces = _once(body) if isinstance(body, bytes) else body
    asked = 0
    sent: Messages = []

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        try:
            return {"type": "http.request", "body": await anext(pieces), "more_body": True}
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/uploads/upload_1/parts",
        "client": (address, 4711),
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in given.items()
        ],
    }
    await application(scope, receive, send)
    return sent[0]["status"], asked


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def test_a_body_of_whoever_may_upload_reaches_django(known: Keys, django: Django) -> None:
    assert await ask(UploadGate(known, BoundedBodies(django)), b"x" * 1000) == (200, 2)
    assert django.received == 1000
    assert known.asked == [("Bearer key", "127.0.0.1", Scope.ADAPTERS_WRITE)]


async def test_nothing_is_read_for_a_stranger(known: Keys, django: Django) -> None:
    for authorization in ("", "Bearer other"):
        application = UploadGate(known, BoundedBodies(django))
        assert await ask(application, b"x", authorization=authorization) == (401, 0)
    known.error = RedisAway("away")
    assert await ask(UploadGate(known, BoundedBodies(django)), b"x") == (503, 0)
    assert django.calls == 0


async def test_what_says_it_is_too_large_is_not_read(known: Keys, django: Django) -> None:
    application = UploadGate(known, BoundedBodies(django))
    assert await ask(application, b"x", content_length=str(MAX_BODY_BYTES + 1)) == (413, 0)
    assert await ask(application, b"x", content_encoding="gzip") == (400, 0)
    for_anybody = BoundedBodies(django)
    assert await ask(for_anybody, b"x", content_length=str(MAX_BODY_BYTES + 1)) == (413, 0)
    assert django.calls == 0


@pytest.mark.parametrize("said", ["", "7", "-1", "1e9", "x"])
async def test_what_lies_about_its_length_is_read_no_further_than_any(
    known: Keys, django: Django, said: str
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(8 * 1024 * 1024)

    status, asked = await ask(
        UploadGate(known, BoundedBodies(django)), endless(), content_length=said
    )
    assert (status, asked) == (413, 9)
    assert django.received <= MAX_BODY_BYTES


@pytest.mark.parametrize(("bound", "value"), [("IDLE_SECONDS", 0.05), ("BODY_SECONDS", 0.0)])
async def test_a_body_that_does_not_come_is_waited_for_no_longer_than_its_time(
    known: Keys, django: Django, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    monkeypatch.setattr(gate, bound, value)

    async def never() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    status, _ = await ask(UploadGate(known, BoundedBodies(django)), never())
    assert status == 400


async def test_of_one_tenant_so_many_run_at_once_and_others_are_not_in_its_way(
    known: Keys, django: Django
) -> None:
    django.may_answer.clear()
    application = UploadGate(known, BoundedBodies(django))
    running = [asyncio.create_task(ask(application)) for _ in range(gate.CALLS_AT_ONCE)]
    await eventually(lambda: django.calls == gate.CALLS_AT_ONCE)
    assert await ask(application) == (429, 0)
    known.caller = a_caller("globex")
    others = asyncio.create_task(ask(application))
    await eventually(lambda: django.calls == gate.CALLS_AT_ONCE + 1)
    django.may_answer.set()
    assert {status for status, _ in await asyncio.gather(*running, others)} == {200}
    known.caller = a_caller("acme")
    assert (await ask(application))[0] == 200


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
async def test_a_body_that_the_disk_does_not_take_is_told_so(known: Keys, code: int) -> None:
    """Django keeps what is large in a file, and lets out what that refuses with."""

    async def full(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        raise OSError(code, "no")

    for application in (BoundedBodies(full), UploadGate(known, BoundedBodies(full))):
        assert await ask(application, b"x") == (503, 1)


async def test_what_breaks_in_django_is_not_taken_for_a_full_disk(known: Keys) -> None:
    async def broken(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        await ask(UploadGate(known, BoundedBodies(broken)), b"x")


async def test_of_one_address_pages_read_so_many_large_bodies_at_once(django: Django) -> None:
    """Who sends one to a page is known only after it was read, to disk."""
    django.may_answer.clear()
    application = BoundedBodies(django, is_open_to_anybody=True)
    large = bytes(gate.LARGE_BYTES + 1)
    running = [asyncio.create_task(ask(application, large)) for _ in range(gate.CALLS_AT_ONCE)]
    await eventually(lambda: django.received == gate.CALLS_AT_ONCE * len(large))
    assert (await ask(application, large))[0] == 429
    others = [
        asyncio.create_task(ask(application, large, address="127.0.0.2")),
        asyncio.create_task(ask(application, bytes(gate.LARGE_BYTES))),
        asyncio.create_task(ask(BoundedBodies(django), large)),
    ]
    await eventually(lambda: django.calls == gate.CALLS_AT_ONCE + 1 + len(others))
    django.may_answer.set()
    assert {status for status, _ in await asyncio.gather(*running, *others)} == {200}
    assert (await ask(application, large))[0] == 200
