"""The OpenAI-compatible door: a plain ASGI application, without Django, on Redis alone.

GET  /v1/models, /v1/models/{id}      the models that the key may use
POST /v1/chat/completions             streaming or not
POST /v1/completions                  streaming or not
POST /v1/stream/tickets               a one-time ticket for a browser's websocket
GET  /v1/limits                       the caller's limits and what is used of them
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
from prometheus_client import Counter
from structlog.contextvars import bound_contextvars

from gpu_workers.protocol.messages import Outcome, Terminal
from gpu_workers.protocol.policy import Caller, Scope
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.tracing import valid_traceparent
from inference.admission.callable_models import CallableModel
from inference.admission.gate import TICKET_SECONDS
from inference.admission.limits import Headers
from inference.errors import (
    Cancelled,
    InferenceError,
    MethodNotAllowed,
    NotFound,
    Unavailable,
    as_inference_error,
)
from inference.lifecycle.completions import Completions
from inference.lifecycle.generation import Generation
from inference.lifecycle.inference_request import InferenceRequest
from inference.openai_api.body import ClientGone, read_body
from inference.openai_api.chat_request import parse_chat
from inference.openai_api.completion_request import parse_completion
from inference.openai_api.limits_answer import limits_json
from inference.openai_api.parameters import known_parameter
from inference.openai_api.responses import (
    DONE,
    PING,
    QUEUED_SIGN_SECONDS,
    encoded,
    error_json,
    event,
    events,
    part,
    send_error,
    send_json,
    send_part,
    start_stream,
)
from inference.streaming.stalled_clients import Stalled, send_at_once, send_unless_stalled

REQUESTS = Counter(
    "penstock_gateway_http_requests_total", "Answers by route and status.", ["route", "status"]
)

Parser = Callable[[bytes], InferenceRequest]
_Handler = Callable[["_Exchange"], Awaitable[None]]
_MODELS: Final = "/v1/models"
# Another application's, below the same base URL; a test compares them with its routes.
UPLOADS: Final = (
    "POST /v1/uploads",
    "GET /v1/uploads/<upload>",
    "POST /v1/uploads/<upload>/parts",
    "POST /v1/uploads/<upload>/complete",
    "POST /v1/uploads/<upload>/cancel",
)
# What clients ask for whose base URL lacks /v1.
WITHOUT_VERSION: Final = frozenset({"/chat/completions", "/completions", "/models"})


class OpenAIApi:
    """The application. One instance serves every request of a process."""

    def __init__(
        self, completions: Completions, *, max_body_bytes: int, stall_seconds: float
    ) -> None:
        self._completions = completions
        self._max_body_bytes = max_body_bytes
        self._stall_seconds = stall_seconds
        self._routes: dict[str, tuple[str, _Handler]] = {
            _MODELS: ("GET", self._list_models),
            "/v1/chat/completions": ("POST", partial(self._complete, parse_chat)),
            "/v1/completions": ("POST", partial(self._complete, parse_completion)),
            "/v1/stream/tickets": ("POST", self._issue_ticket),
            "/v1/limits": ("GET", self._show_limits),
        }

    @property
    def addresses(self) -> dict[str, str]:
        """Return the method of every address that there is."""
        addresses = {path: method for path, (method, _) in self._routes.items()}
        return addresses | {f"{_MODELS}/<model>": "GET"}

    def _unknown(self, path: str) -> str:
        if path in WITHOUT_VERSION:
            return f"Unknown endpoint {path}: add /v1 to the base URL, as in /v1{path}."
        ours = [f"{method} {path}" for path, method in self.addresses.items()]
        return f"Unknown endpoint. Available: {', '.join([*ours, *UPLOADS])}."

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].rstrip("/")
        is_model = path.startswith(f"{_MODELS}/")
        route = f"{_MODELS}/{{id}}" if is_model else path
        method, handler = (
            ("GET", self._show_model) if is_model else self._routes.get(path, ("", None))
        )
        exchange = _Exchange(
            scope,
            receive,
            send,
            route if handler else "unknown",
            stall_seconds=self._stall_seconds,
        )
        with bound_contextvars(request_id=exchange.request_id):
            await self._answer(exchange, handler, method)

    async def _answer(self, exchange: "_Exchange", handler: _Handler | None, method: str) -> None:
        """Have the request handled; whatever fails becomes its answer."""
        try:
            if handler is None:
                raise NotFound(self._unknown(exchange.scope["path"].rstrip("/")))
            asked = exchange.scope["method"]
            if asked != method:
                exchange.allow = method
                raise MethodNotAllowed(f"{exchange.route} takes {method}, got {asked[:20]}.")
            await handler(exchange)
        except (ClientGone, Stalled):
            return
        except asyncio.CancelledError:
            # The server's time to shut down is over: the last moment to tell the client.
            await exchange.fail(
                Unavailable(
                    "The gateway shut down before the end; try again.", retry_after_seconds=1
                )
            )
        except Exception as error:  # noqa: BLE001 - the caller gets a typed answer, the log the rest
            failure = as_inference_error(error)
            if not exchange.is_admitted:
                self._completions.note_refusal(
                    failure,
                    exchange.caller,
                    model=exchange.model,
                    request_id=exchange.request_id,
                    parameter=known_parameter(failure.param),
                    is_completion=exchange.is_completion,
                )
            await exchange.fail(failure)

    async def _list_models(self, exchange: "_Exchange") -> None:
        caller = await self._authenticate(exchange)
        offers = await self._completions.admission.visible_offers(caller)
        await exchange.answer({"object": "list", "data": [_model_json(offer) for offer in offers]})

    async def _show_model(self, exchange: "_Exchange") -> None:
        caller = await self._authenticate(exchange)
        name = exchange.model = exchange.scope["path"].removeprefix(f"{_MODELS}/").rstrip("/")
        admission = self._completions.admission
        # Whoever only looks takes nobody's turn between two versions.
        offer = await admission.offer(name, caller, sticky=caller.tenant_id)
        await exchange.answer(_model_json(offer))

    async def _show_limits(self, exchange: "_Exchange") -> None:
        caller = await self._authenticate(exchange)
        admission = self._completions.admission
        models = await admission.visible_models(caller)
        statuses = await admission.limit_statuses(caller)
        forecasts = await self._completions.forecasts(caller, models)
        await exchange.answer(limits_json(caller, models, statuses, forecasts))

    async def _issue_ticket(self, exchange: "_Exchange") -> None:
        caller = await self._authenticate(exchange, Scope.INFERENCE)
        ticket = await self._completions.admission.issue_ticket(caller)
        exchange.headers = (("Cache-Control", "no-store"),)
        await exchange.answer(
            {"object": "stream.ticket", "ticket": ticket, "expires_in": TICKET_SECONDS}
        )

    async def _complete(self, parse: Parser, exchange: "_Exchange") -> None:
        exchange.is_completion = True
        caller = await self._authenticate(exchange, Scope.INFERENCE)
        data = await read_body(exchange.scope, exchange.receive, max_bytes=self._max_body_bytes)
        request = parse(data)
        exchange.model = request.model
        generation = await self._completions.begin(
            caller,
            request,
            request_id=exchange.request_id,
            traceparent=self._traceparent(exchange.scope),
        )
        exchange.is_admitted = True
        exchange.headers = generation.headers
        # The server swallows sends to a client that has left: only `receive` tells.
        watcher = asyncio.create_task(_cancel_when_gone(exchange.receive, generation))
        try:
            if request.stream:
                await _stream(exchange, generation)
            else:
                terminal = await generation.result()
                if terminal.body is None:
                    raise _Ended(terminal)
                await exchange.answer(terminal.body)
        except _Ended as ended:
            await exchange.fail(ended.error)
        finally:
            watcher.cancel()
            generation.cancel()

    def _traceparent(self, scope: Any) -> str:
        """Return the client's well-formed `traceparent`; empty where nothing is traced."""
        if self._completions.tracer is None:
            return ""
        given = [value for name, value in scope["headers"] if name == b"traceparent"]
        return valid_traceparent(given[0].decode("latin-1")) if len(given) == 1 else ""

    async def _authenticate(self, exchange: "_Exchange", scope: Scope | None = None) -> Caller:
        authorization: str | None = None
        for name, value in exchange.scope["headers"]:
            if name == b"authorization":
                authorization = value.decode("latin-1")
                break
        exchange.caller = await self._completions.admission.authenticate(
            authorization, address=client_address(exchange.scope), scope=scope
        )
        return exchange.caller


class _Exchange:
    """One request and its answer, which carries a request id whatever becomes of it. `caller` and
    `model` as far as they were read."""

    __slots__ = (
        "_server_send",
        "allow",
        "caller",
        "has_begun",
        "headers",
        "is_admitted",
        "is_completion",
        "model",
        "receive",
        "request_id",
        "route",
        "scope",
        "send",
    )

    def __init__(
        self, scope: Any, receive: Any, send: Any, route: str, *, stall_seconds: float
    ) -> None:
        self.scope, self.receive, self.route = scope, receive, route
        self._server_send = send
        self.send = partial(send_unless_stalled, send, stall_seconds)
        self.request_id = new_request_id()
        self.allow: str | None = None
        self.headers: Headers = ()
        self.caller: Caller | None = None
        self.model: str | None = None
        self.is_completion = self.is_admitted = False
        self.has_begun = False

    async def answer(self, body: bytes | dict[str, Any]) -> None:
        self._begin(200)
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        await send_json(self.send, self.request_id, data, headers=encoded(self.headers))

    async def stream(self, body: bytes, *, is_last: bool = False) -> None:
        if not self.has_begun:
            self._begin(200)
            await start_stream(self.send, self.request_id, self.headers)
        await send_part(self.send, body, is_last=is_last)

    def write(self, chunks: list[bytes]) -> bool:
        """Stream chunks if that needs no waiting, and return whether."""
        return self.has_begun and send_at_once(self._server_send, part(events(chunks)))

    async def fail(self, error: Any) -> None:
        """Answer with a status while that is still possible, else with an error event and the
        end."""
        headers = self.headers
        if isinstance(error, InferenceError):
            headers = headers or error.headers
            error = error.to_wire()
        if self.has_begun:
            with contextlib.suppress(Stalled):
                await send_part(self.send, event(error_json(error)), is_last=True)
            return
        self._begin(error.status)
        await send_error(self.send, self.request_id, error, allow=self.allow, more_headers=headers)

    def _begin(self, status: int) -> None:
        self.has_begun = True
        REQUESTS.labels(self.route, str(status)).inc()


class _Ended(Exception):
    """A request ended in another way than by an answer."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal.outcome)
        self.error = terminal.error or Cancelled("The request was ended early.").to_wire()


async def _stream(exchange: _Exchange, generation: Generation) -> None:
    """Send chunks as they come, all that has gathered in one send. What comes first decides whether
    the answer is a stream or an error status; one that waits in the queue begins within a second,
    before proxies lose patience, and ends with an error event if it fails."""
    sign = generation.wake_if_queued(QUEUED_SIGN_SECONDS)
    try:
        await _stream_until_end(exchange, generation, begins_empty=sign is not None)
    finally:
        if sign is not None:
            sign.cancel()


async def _stream_until_end(
    exchange: _Exchange, generation: Generation, *, begins_empty: bool
) -> None:
    while True:
        progress = await generation.next(exchange.write)
        end = progress.end
        if end is not None and (end.error is not None or end.outcome is not Outcome.COMPLETED):
            if progress.chunks:
                await exchange.stream(events(progress.chunks))
            raise _Ended(end)
        data = events(progress.chunks) if progress.chunks else b""
        if end is not None:
            await exchange.stream(data + DONE, is_last=True)
            return
        if data or exchange.has_begun or begins_empty:
            await exchange.stream(data or PING)


def client_address(scope: Any) -> str | None:
    """Return the peer's address, or the one that a trusted proxy named; the edge decides."""
    client = scope.get("client")
    return client[0] if client else None


async def _cancel_when_gone(receive: Any, generation: Generation) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    generation.cancel()


def _model_json(offer: CallableModel) -> dict[str, Any]:
    model, adapter = offer.model, offer.adapter
    return {
        "id": offer.name,
        "object": "model",
        "created": model.created_at if adapter is None else adapter.policy.created_at,
        "owned_by": model.owned_by if adapter is None else offer.name.partition("/")[0],
        "max_model_len": model.context_tokens,
        "capabilities": model.capabilities,
        "parent": None if adapter is None else model.name,
    }
