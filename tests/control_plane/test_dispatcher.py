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


def dispatcher(
    lifetime: Lifetime | None = None, *, gateway: bool = True, management: bool = True
) -> Dispatcher:
    return Dispatcher(
        edge=Edge(),
        lifetime=lifetime or Lifetime(),
        status=named("status"),
        gateway=named("gateway") if gateway else None,
        websocket=named("websocket") if gateway else None,
        uploads=named("uploads") if management else None,
        django=named("django") if management else None,
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
    ("path", "answers", "plane"),
    [
        ("/v1/chat/completions", "gateway", "gateway"),
        ("/v1/", "gateway", "gateway"),
        ("/v1", "gateway", "gateway"),
        ("/chat/completions", "gateway", "gateway"),
        ("/models/", "gateway", "gateway"),
        ("/v1x", "django", "management"),
        ("/v1/uploads", "uploads", "management"),
        ("/v1/uploads/upload_1/parts", "uploads", "management"),
        ("/v1/uploadsx", "gateway", "gateway"),
        ("/v1/uploads/", "uploads", "management"),
        ("/", "django", "management"),
        ("/admin/", "django", "management"),
        ("/metrics/", "django", "management"),
        ("/ws/v1/stream", "gateway", "gateway"),
    ],
)
async def test_the_path_says_who_answers(path: str, answers: str, plane: str) -> None:
    scope = {"type": "http", "path": path, "method": "GET", "headers": []}
    assert await drive(dispatcher(), scope) == [{"type": answers}]
    for alone in ("gateway", "management"):
        part = dispatcher(gateway=alone == "gateway", management=alone == "management")
        sent = await drive(part, scope)
        if alone == plane:
            assert sent == [{"type": answers}]
        else:
            assert sent[0]["status"] == 404
            assert f"The {plane} process serves this path" in sent[1]["body"].decode()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_every_process_tells_of_itself(path: str) -> None:
    scope = {"type": "http", "path": path}
    for part in (dispatcher(), dispatcher(gateway=False), dispatcher(management=False)):
        assert await drive(part, scope) == [{"type": "status"}]


@pytest.mark.parametrize("path", ["/v1/models", "/api/v1/session", "/account/login/", "/readyz"])
async def test_clear_text_is_refused_before_anything_is_read(path: str) -> None:
    headers = [(b"authorization", b"Bearer x")]
    stranger = {"type": "http", "path": path, "method": "POST", "headers": headers}
    start, _ = await drive(dispatcher(), stranger | {"client": ("203.0.113.7", 4711)})
    assert start["status"] == 403


@pytest.mark.parametrize("path", ["/v1/models", "/api/v1/session", "/", "/readyz"])
async def test_two_credentials_are_refused_rather_than_one_of_them_chosen(path: str) -> None:
    headers = [(b"authorization", b"Bearer x"), (b"authorization", b"Bearer x")]
    scope = {"type": "http", "path": path, "method": "GET", "headers": headers}
    start, body = await drive(dispatcher(), scope)
    assert start["status"] == 400
    assert "repeated_authorization" in body["body"].decode()
    scope["headers"] = headers[:1]
    (passed,) = await drive(dispatcher(), scope)
    assert passed["type"] in {"gateway", "django", "status"}


async def test_websockets_are_taken_under_their_path_only() -> None:
    connect = "websocket.connect"
    good = {"type": "websocket", "path": "/ws/v1/stream"}
    bad = {"type": "websocket", "path": "/v1/stream"}
    assert await drive(dispatcher(), good, connect) == [{"type": "websocket"}]
    for application, scope in (
        (dispatcher(), bad),
        (dispatcher(gateway=False), good),
        (dispatcher(gateway=False), bad),
    ):
        (sent,) = await drive(application, scope, connect)
        assert (sent["type"], sent["code"]) == ("websocket.close", 4404)
    (sent,) = await drive(dispatcher(gateway=False), good, connect)
    assert sent["reason"] == "served by the gateway process"


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
