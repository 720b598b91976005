"""Stands before Django, which reads all of a body, to disk, before any of our code learns who sends
it. Here no more is read than may come, nor for longer; where bodies are large the key is checked
first, as the gateway checks it, and one tenant has so many calls at once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, Protocol

from gpu_workers.protocol.policy import Caller, Scope
from gpu_workers.protocol.request_id import new_request_id
from inference.blobs.errors import room_on_disk
from inference.errors import (
    BodyTooLarge,
    InferenceError,
    InvalidRequest,
    LimitReached,
    as_inference_error,
)
from inference.openai_api.app import client_address
from inference.openai_api.responses import send_error

# A part of 64 MiB, and what a form adds.
MAX_BODY_BYTES: Final = 64 * 1024 * 1024 + 64 * 1024
# Between two pieces of a body, and for all of it: 64 MiB in ten minutes are 0.9 Mbit/s.
IDLE_SECONDS: Final = 30.0
BODY_SECONDS: Final = 600.0
# Calls of one tenant at a time in one process: each may have a body on disk. Of pages, whose
# callers are known only after the body was read, larger bodies than this from one address.
CALLS_AT_ONCE: Final = 8
LARGE_BYTES: Final = 1024 * 1024

Application = Callable[[Any, Any, Any], Awaitable[None]]


class Authenticate(Protocol):
    """The gateway's, see `inference.admission.gate`."""

    async def __call__(
        self, authorization: str | None, *, address: str | None, scope: Scope | None
    ) -> Caller: ...


class BoundedBodies:
    """Django behind bounds on what it reads of one request, and where `is_open_to_anybody` of how
    many large ones it reads from one address at once."""

    def __init__(self, django: Application, *, is_open_to_anybody: bool = False) -> None:
        self._django = django
        self._is_open_to_anybody = is_open_to_anybody
        self._large: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            _check_headers(dict(scope["headers"]))
            with room_on_disk(), ExitStack() as place:
                address = client_address(scope) or ""
                take = partial(place.enter_context, _place(self._large, address))
                bounded = _Bounded(receive, take if self._is_open_to_anybody else _nothing)
                # Until a body is whole Django has answered nothing; after that it tells of what
                # breaks itself.
                await self._django(scope, bounded, send)
        except InferenceError as error:
            await send_error(send, new_request_id(), error)


class UploadGate:
    """The ASGI application of /v1/uploads: lets through to Django who may upload."""

    def __init__(self, authenticate: Authenticate, django: BoundedBodies) -> None:
        self._authenticate = authenticate
        self._django = django
        self._calls: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            with _place(self._calls, await self._tenant_of(scope)):
                await self._django(scope, receive, send)
        except InferenceError as error:
            await send_error(send, new_request_id(), error)

    async def _tenant_of(self, scope: Any) -> str:
        authorization = dict(scope["headers"]).get(b"authorization")
        try:
            caller = await self._authenticate(
                authorization.decode("latin-1") if authorization else None,
                address=client_address(scope),
                scope=Scope.ADAPTERS_WRITE,
            )
        except Exception as error:
            raise as_inference_error(error) from error
        return caller.tenant_id


@contextmanager
def _place(taken: Counter[str], whose: str) -> Iterator[None]:
    """Take one of the places of a tenant, or of an address. Raises `LimitReached`."""
    if taken[whose] >= CALLS_AT_ONCE:
        raise LimitReached(
            f"{CALLS_AT_ONCE} calls of your uploads run already: send fewer at once.",
            retry_after_seconds=1,
        )
    taken[whose] += 1
    try:
        yield
    finally:
        taken[whose] -= 1
        if not taken[whose]:
            del taken[whose]


def _nothing() -> None:
    """Ask for no place: whoever calls has one."""


class _Bounded:
    """Receives a body within its bounds; once it is whole, whatever comes. Calls `on_large` once,
    as soon as it is a large one."""

    def __init__(self, receive: Any, on_large: Callable[[], None]) -> None:
        self._receive = receive
        self._on_large: Callable[[], None] | None = on_large
        self._size = 0
        self._is_whole = False
        self._until = asyncio.get_running_loop().time() + BODY_SECONDS

    async def __call__(self) -> Any:
        """Raises `BodyTooLarge`, `InvalidRequest` and what `on_large` does."""
        if self._is_whole:
            return await self._receive()
        left = self._until - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(0.0, min(left, IDLE_SECONDS))):
                message = await self._receive()
        except TimeoutError:
            raise InvalidRequest(
                f"The body did not arrive in time: {IDLE_SECONDS:.0f} s may pass between two "
                f"pieces, and {BODY_SECONDS:.0f} s for all. Send smaller parts.",
                code="body_timeout",
            ) from None
        self._size += len(message.get("body", b""))
        if self._size > MAX_BODY_BYTES:
            raise _too_large()
        if self._size > LARGE_BYTES and self._on_large is not None:
            self._on_large()
            self._on_large = None
        self._is_whole = not message.get("more_body", False)
        return message


def _check_headers(headers: dict[bytes, bytes]) -> None:
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise InvalidRequest("The body must not be compressed; leave content-encoding away.")
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
        raise _too_large()


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"The body may have at most {MAX_BODY_BYTES} bytes: send smaller parts.")
