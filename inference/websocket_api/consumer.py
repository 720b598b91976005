"""The websocket door: many requests on one connection, each a task of its own. See `frames`.

A connection stands for the key of its Authorization header or, for browsers, of a one-time ticket
(`?ticket=`); the playground's page has tickets of its session (`?session_ticket=`). The key is
checked again for every request, and once a second in between: when it is revoked or expires, or its
tenant is suspended, what is open ends with a typed error, and then the connection.
"""

import asyncio
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings as django_settings
from django.http import parse_cookie
from prometheus_client import Counter, Gauge
from structlog.contextvars import bind_contextvars

from gpu_workers.protocol.messages import Outcome, Terminal
from gpu_workers.protocol.policy import Caller, Scope
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.tracing import valid_traceparent
from inference.background import Background
from inference.errors import (
    Cancelled,
    ConnectionFull,
    Forbidden,
    InferenceError,
    InvalidRequest,
    as_inference_error,
)
from inference.lifecycle.completions import Completions, GatewaySettings
from inference.lifecycle.generation import Generation
from inference.lifecycle.saturation import Notice
from inference.openai_api.chat_request import parse_chat
from inference.openai_api.completion_request import parse_completion
from inference.openai_api.parameters import known_parameter
from inference.openai_api.responses import QUEUED_SIGN_SECONDS, error_json, retry_headers
from inference.streaming.stalled_clients import send_unless_stalled
from inference.websocket_api.access_watch import AccessWatch
from inference.websocket_api.frames import (
    CancelFrame,
    FrameWriter,
    RequestFrame,
    decode_frame,
    id_of,
)

CONNECTIONS = Gauge("penstock_gateway_websockets", "Open websocket connections.")
REQUESTS = Counter(
    "penstock_gateway_websocket_requests_total",
    "Requests over websockets by how they ended.",
    ["end"],
)

_PARSERS: Final = {"chat.completions": parse_chat, "completions": parse_completion}
_UNAUTHORIZED: Final = 4401
_FORBIDDEN: Final = 4403
# What a refused connection has open is given this long to end before the connection does.
_CLOSE_GRACE_SECONDS: Final = 2.0


class _Request:
    """A request of the connection, from its frame to its last answer."""

    __slots__ = ("generation", "is_cancelled", "model", "request_id")

    def __init__(self) -> None:
        self.request_id = new_request_id()
        self.model: str | None = None
        self.generation: Generation | None = None
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.generation is not None:
            self.generation.cancel()


class StreamConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One connection. There is no Channels layer: it drops silently when it is full."""

    def __init__(
        self,
        *,
        completions: Completions,
        settings: GatewaySettings,
        background: Background,
        access: AccessWatch,
    ) -> None:
        super().__init__()
        self._completions = completions
        self._settings = settings
        self._background = background
        self._access = access
        self._requests: dict[str, _Request] = {}
        self._caller: Caller | None = None
        self.is_open = False
        self._has_no_request = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a connection. However it ends, also by the server's shutdown, its requests end
        too."""
        send = partial(send_unless_stalled, send, self._settings.stall_seconds)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Dispatch without Channels' own look for database connections to close: none are open."""
        match message["type"]:
            case "websocket.connect":
                await self.connect()
            case "websocket.receive":
                await self.receive(message.get("text"), message.get("bytes"))
            case "websocket.disconnect":
                raise StopConsumer

    async def connect(self) -> None:
        try:
            self._check_origin()
            self._caller = await self._authenticate()
            self._access.watch(self)
        except Exception as error:  # noqa: BLE001 - the caller gets a typed answer, the log the rest
            refusal = as_inference_error(error)
            self._note_refusal(refusal)
            await self._refuse(refusal)
            return
        await self.accept()
        self.is_open = True
        CONNECTIONS.inc()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        frame: RequestFrame | CancelFrame | None = None
        try:
            frame = decode_frame(text_data)
            if isinstance(frame, CancelFrame):
                self._cancel(frame)
            else:
                self._accept_request(frame)
        except InferenceError as error:
            if not isinstance(frame, CancelFrame):
                self._note_refusal(error)
            name = frame.id if frame is not None else id_of(text_data)
            # Of one that is open it would end the request.
            writer = FrameWriter(None if name in self._requests else name)
            await self._send(writer.error(error.to_wire()))

    def _close(self) -> None:
        self._access.forget(self)
        if self.is_open:
            self.is_open = False
            CONNECTIONS.dec()
        for request in self._requests.values():
            request.cancel()

    # frames -------------------------------------------------------------------------------------

    def _accept_request(self, frame: RequestFrame) -> None:
        if frame.id in self._requests:
            raise InvalidRequest(
                f"The id {frame.id!r} is in use on this connection; take another.",
                param="id",
                code="duplicate_id",
            )
        limit = self._settings.max_requests_per_websocket
        if len(self._requests) >= limit:
            raise ConnectionFull(
                f"This connection has {limit} requests open, which is the most it may have; "
                f"{frame.id!r} was not taken."
            )
        request = self._requests[frame.id] = _Request()
        self._background.spawn(self._run(frame, request), name="websocket-request")

    def _cancel(self, frame: CancelFrame) -> None:
        request = self._requests.get(frame.id)
        if request is None:
            raise InvalidRequest(
                f"No request {frame.id!r} is open on this connection.",
                param="id",
                code="unknown_request",
            )
        request.cancel()

    async def _run(self, frame: RequestFrame, request: _Request) -> None:
        writer = FrameWriter(frame.id)
        # The task is this request's own.
        bind_contextvars(request_id=request.request_id)
        try:
            last = await self._complete(frame, request, writer)
        except Exception as error:  # noqa: BLE001 - the caller gets a typed answer, the log the rest
            REQUESTS.labels("error").inc()
            failure = as_inference_error(error)
            if request.generation is None:
                self._note_refusal(failure, request)
            last = writer.error(failure.to_wire())
        finally:
            # Free before the client hears of the end, so that it may take the id again at once.
            del self._requests[frame.id]
            if not self._requests:
                self._has_no_request.set()
            if request.generation is not None:
                request.generation.cancel()
        await self._send(last)

    async def _complete(self, frame: RequestFrame, request: _Request, writer: FrameWriter) -> str:
        """Send the chunks; return the frame that ends the request."""
        caller = await self._completions.admission.revalidate(
            self.caller, address=self.address, scope=Scope.INFERENCE
        )
        parsed = _PARSERS[frame.api](bytes(frame.body))
        request.model = parsed.model
        generation = request.generation = await self._completions.begin(
            caller, parsed, request_id=request.request_id, traceparent=self._traceparent()
        )
        if request.is_cancelled:
            generation.cancel()
        if generation.notice != Notice() or generation.adapter is not None:
            await self._send(writer.notice(generation.notice, generation.adapter))
        sign = generation.wake_if_queued(QUEUED_SIGN_SECONDS)
        try:
            return await self._stream(request, generation, writer, is_queued=sign is not None)
        finally:
            if sign is not None:
                sign.cancel()

    async def _stream(
        self, request: _Request, generation: Generation, writer: FrameWriter, *, is_queued: bool
    ) -> str:
        """Send the chunks, and before them, once, that the request still waits; return the frame
        that ends it."""
        while True:
            progress = await generation.next()
            if is_queued and not progress.chunks and progress.end is None:
                await self._send(writer.waiting())
            is_queued = False
            for chunk in progress.chunks:
                await self._send(writer.chunk(chunk))
            if progress.end is not None:
                return await self._last_frame(progress.end, request, writer)

    async def _last_frame(self, end: Terminal, request: _Request, writer: FrameWriter) -> str:
        if request.is_cancelled and end.outcome is Outcome.CANCELLED:
            REQUESTS.labels("cancelled").inc()
            return writer.done(end, "cancelled")
        if end.error is not None or end.outcome is not Outcome.COMPLETED:
            REQUESTS.labels("error").inc()
            return writer.error(end.error or Cancelled("The request was ended early.").to_wire())
        if end.body is not None:
            await self._send(writer.chunk(end.body))
        REQUESTS.labels("done").inc()
        return writer.done(end, end.finish_reason)

    def _note_refusal(self, error: InferenceError, request: _Request | None = None) -> None:
        self._completions.note_refusal(
            error,
            self._caller,
            model=None if request is None else request.model,
            request_id="" if request is None else request.request_id,
            parameter=known_parameter(error.param),
        )

    async def _send(self, text: str) -> None:
        if not self.is_open:
            return
        try:
            await self.send(text_data=text)
        except OSError:  # as ASGI has it where the client is gone
            self._close()

    # access -------------------------------------------------------------------------------------

    @property
    def caller(self) -> Caller:
        """Return whom the connection stands for."""
        assert self._caller is not None  # noqa: S101 - all that asks comes after the handshake
        return self._caller

    @property
    def address(self) -> str | None:
        client = self.scope.get("client")
        return client[0] if client else None

    async def end_refused(self, error: InferenceError) -> None:
        """End the requests of a caller that may not go on, and then the connection."""
        for request in list(self._requests.values()):
            if request.generation is not None:
                request.generation.refuse(error)
        if self._requests:
            self._has_no_request.clear()
            await _is_set_within(_CLOSE_GRACE_SECONDS, self._has_no_request)
        await self._send(FrameWriter(None).error(error.to_wire()))
        if self.is_open:
            self._close()
            await self.close(code=_close_code(error))

    # handshake ----------------------------------------------------------------------------------

    def _check_origin(self) -> None:
        """Check Origin. Browsers always send it, and only they can be made to connect by another
        site."""
        origin = self._header(b"origin")
        if origin is not None and origin not in self._settings.allowed_origins:
            raise Forbidden(f"Websockets may not be opened from the origin {origin[:200]!r}.")

    async def _authenticate(self) -> Caller:
        authorization = self._header(b"authorization")
        if authorization is None:
            query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
            if "session_ticket" in query:
                return await self._redeemed(query["session_ticket"][0], self._session())
            if "ticket" in query:
                return await self._redeemed(query["ticket"][0], "")
        return await self._completions.admission.authenticate(
            authorization, address=self.address, scope=Scope.INFERENCE
        )

    def _traceparent(self) -> str:
        """Return that of the handshake, which all requests of the connection are below; empty where
        nothing is traced."""
        given = self._header(b"traceparent") if self._completions.tracer is not None else None
        return valid_traceparent(given or "")

    async def _redeemed(self, ticket: str, session: str) -> Caller:
        return await self._completions.admission.redeem_ticket(
            ticket, session=session, address=self.address, scope=Scope.INFERENCE
        )

    def _session(self) -> str:
        """Return the key of the page's session; of one that has none, what none has."""
        cookies = parse_cookie(self._header(b"cookie") or "")
        return cookies.get(django_settings.SESSION_COOKIE_NAME) or "no session"

    def _header(self, wanted: bytes) -> str | None:
        for name, value in self.scope["headers"]:
            if name == wanted:
                return str(value.decode("latin-1"))
        return None

    async def _refuse(self, error: InferenceError) -> None:
        """Answer the handshake with the error itself where the server can send one, else a 403."""
        wire = error.to_wire()
        if "websocket.http.response" not in self.scope.get("extensions", {}):
            await self.base_send({"type": "websocket.close", "code": _close_code(error)})
            return
        headers = [(b"content-type", b"application/json"), *retry_headers(wire)]
        await self.base_send(
            {"type": "websocket.http.response.start", "status": wire.status, "headers": headers}
        )
        await self.base_send({"type": "websocket.http.response.body", "body": error_json(wire)})


def _close_code(error: InferenceError) -> int:
    return _FORBIDDEN if error.status == 403 else _UNAUTHORIZED


async def _is_set_within(seconds: float, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
