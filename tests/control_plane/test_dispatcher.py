from typing import Any

import pytest
from control_plane.dispatcher import Application, Dispatcher
from control_plane.edge import Edge


class Lifetime:
    def __init__(self, *, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._error = error

    async def startup(self) -> None:
        self.calls.append("startup")
        if self._error:
            raise self._error

    async def shutdown(self) -> None:
        self.calls.append("shutdown")


def named(name: str) -> Application:
    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": name})

    return application


def dispatcher(lifetime: Lifetime | None = None, *, alone: bool = False) -> Dispatcher:
    return Dispatcher(
        edge=Edge(),
        lifetime=lifetime or Lifetime(),
        gateway=named("gateway"),
        status=named("status"),
        websocket=None if alone else named("websocket"),
        uploads=None if alone else named("uploads"),
        django=None if alone else named("django"),
    )


async def drive(application: Dispatcher, scope: dict[str, Any], *received: str) -> list[Any]:
    messages = [{"type": message} for message in received]
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    ("path", "together", "alone"),
    [
        ("/v1/chat/completions", "gateway", "gateway"),
        ("/v1/", "gateway", "gateway"),
        ("/v1", "gateway", "gateway"),
        ("/v1x", "django", "gateway"),
        ("/v1/uploads", "uploads", "gateway"),
        ("/v1/uploads/upload_1/parts", "uploads", "gateway"),
        ("/v1/uploadsx", "gateway", "gateway"),
        ("/v1/uploads/", "uploads", "gateway"),
        ("/", "django", "gateway"),
        ("/admin/", "django", "gateway"),
        ("/healthz", "status", "status"),
        ("/readyz", "status", "status"),
        ("/metrics", "status", "status"),
        ("/metrics/", "django", "gateway"),
        ("/ws/v1/stream", "django", "gateway"),
    ],
)
async def test_the_path_says_who_answers(path: str, together: str, alone: str) -> None:
    scope = {"type": "http", "path": path}
    assert await drive(dispatcher(), scope) == [{"type": together}]
    assert await drive(dispatcher(alone=True), scope) == [{"type": alone}]


async def test_websockets_are_taken_under_their_path_only() -> None:
    connect = "websocket.connect"
    good = {"type": "websocket", "path": "/ws/v1/stream"}
    bad = {"type": "websocket", "path": "/v1/stream"}
    assert await drive(dispatcher(), good, connect) == [{"type": "websocket"}]
    for application, scope in ((dispatcher(), bad), (dispatcher(alone=True), good)):
        (sent,) = await drive(application, scope, connect)
        assert (sent["type"], sent["code"]) == ("websocket.close", 4404)


async def test_the_gateway_lives_as_long_as_the_server() -> None:
    lifetime = Lifetime()
    sent = await drive(
        dispatcher(lifetime), {"type": "lifespan"}, "lifespan.startup", "lifespan.shutdown"
    )
    assert lifetime.calls == ["startup", "shutdown"]
    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


async def test_a_failed_start_is_told_to_the_server() -> None:
    lifetime = Lifetime(error=RuntimeError("no functions"))
    sent = await drive(dispatcher(lifetime), {"type": "lifespan"}, "lifespan.startup")
    assert sent == [{"type": "lifespan.startup.failed", "message": "no functions"}]
