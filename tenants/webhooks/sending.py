"""One delivery over HTTP, to an address that was checked and nothing else.

The host's addresses are asked for once, all of them are checked, and the connection is made to one
of these: there is no second look-up that could answer differently (DNS rebinding). TLS and the Host
header are the URL's host's all the same. Redirects are not followed, proxies of the environment are
not used, and the whole of it ends within `TOTAL_SECONDS`, however slowly the other side speaks.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpcore2

from tenants.webhooks import addresses
from tenants.webhooks.addresses import AddressRefused, Target, Unresolvable, UrlRefused
from tenants.webhooks.checked_network import CheckedNetwork
from tenants.webhooks.models.delivery import MAX_EXCERPT_CHARACTERS
from tenants.webhooks.problems import Problem

TOTAL_SECONDS: Final = 20.0
_READ_BYTES: Final = 4096
_LONGEST_RETRY_AFTER_SECONDS: Final = 6 * 3600


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an attempt ended; `problem` None: it was taken. `detail` is for people, and holds nothing
    of the request."""

    started_at: datetime
    duration_ms: int
    status_code: int | None = None
    problem: Problem | None = None
    detail: str = ""
    response_excerpt: str = ""
    retry_after_seconds: int | None = None


def send(
    url: str,
    *,
    owner: str,
    headers: Mapping[str, str],
    body: str,
    ssl_context: ssl.SSLContext | None = None,
    total_seconds: float = TOTAL_SECONDS,
) -> Outcome:
    """POST the body to a server of the owner. Blocks for at most `total_seconds`, and raises
    nothing for what the other side or the network does."""
    started_at, started = datetime.now(UTC), time.monotonic()
    answer: _Answer | _Refusal
    try:
        target = addresses.parse_url(url)
        answer = asyncio.run(_post(target, owner, headers, body, ssl_context, total_seconds))
    except UrlRefused as error:
        answer = _Refusal(Problem.ADDRESS_REFUSED, str(error))
    duration_ms = int((time.monotonic() - started) * 1000)
    if isinstance(answer, _Refusal):
        return Outcome(
            started_at=started_at,
            duration_ms=duration_ms,
            problem=answer.problem,
            detail=answer.detail[:300],
        )
    return Outcome(
        started_at=started_at,
        duration_ms=duration_ms,
        status_code=answer.status,
        problem=_problem_of(answer.status),
        response_excerpt=_shown(answer.body),
        retry_after_seconds=_retry_after_seconds(answer.retry_after, started_at),
    )


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes
    retry_after: str


@dataclass(frozen=True)
class _Refusal:
    problem: Problem
    detail: str = ""


async def _post(
    target: Target,
    owner: str,
    headers: Mapping[str, str],
    body: str,
    ssl_context: ssl.SSLContext | None,
    total_seconds: float,
) -> _Answer | _Refusal:
    try:
        async with asyncio.timeout(total_seconds):
            return await _answer(target, owner, headers, body, ssl_context)
    except AddressRefused as error:
        return _Refusal(Problem.ADDRESS_REFUSED, str(error))
    except Unresolvable as error:
        return _Refusal(Problem.UNRESOLVABLE, str(error))
    except (TimeoutError, httpcore2.TimeoutException):
        return _Refusal(Problem.TIMEOUT)
    except httpcore2.ProtocolError as error:
        return _Refusal(Problem.BAD_ANSWER, str(error))
    except (httpcore2.NetworkError, OSError) as error:
        tls = _tls_error(error)
        if tls is not None:
            return _Refusal(Problem.TLS_FAILED, tls)
        return _Refusal(Problem.CONNECT_FAILED)


async def _answer(
    target: Target,
    owner: str,
    headers: Mapping[str, str],
    body: str,
    ssl_context: ssl.SSLContext | None,
) -> _Answer:
    url = httpcore2.URL(
        scheme=target.scheme.encode(),
        host=(f"[{target.host}]" if ":" in target.host else target.host).encode(),
        port=target.port,
        target=target.path.encode(),
    )
    async with (
        httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=1,
            network_backend=CheckedNetwork(target, owner=owner),
        ) as pool,
        pool.stream(
            "POST",
            url,
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            content=body.encode(),
        ) as response,
    ):
        given = {bytes(name).lower(): bytes(value) for name, value in response.headers}
        return _Answer(
            status=response.status,
            body=await _start_of(response),
            retry_after=given.get(b"retry-after", b"").decode("latin-1"),
        )


async def _start_of(response: httpcore2.Response) -> bytes:
    """Read as much of the body as is shown; the rest is not read, and the connection is not used
    again."""
    start = b""
    async for chunk in response.aiter_stream():
        start += chunk[: _READ_BYTES - len(start)]
        if len(start) >= _READ_BYTES:
            break
    return start


def _problem_of(status: int) -> Problem | None:
    if 200 <= status < 300:
        return None
    if status == 410:
        return Problem.GONE
    return Problem.REDIRECT if 300 <= status < 400 else Problem.STATUS


def _tls_error(error: BaseException | None) -> str | None:
    """Return the reason if TLS is behind an error, otherwise None."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return getattr(error, "verify_message", "") or (error.reason or "")
        error = error.__cause__ or error.__context__
    return None


def _shown(body: bytes) -> str:
    """Return text without controls and marks that turn its direction: it is somebody else's, and is
    shown to people."""
    text = body.decode("utf-8", errors="replace")[:MAX_EXCERPT_CHARACTERS]
    return "".join(
        letter if letter.isprintable() or letter in "\t\n" else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def _retry_after_seconds(text: str, now: datetime) -> int | None:
    """Parse Retry-After, seconds or a date, to seconds; None where it is neither or has passed."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        seconds = int(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = int((moment - now).total_seconds())
    return min(seconds, _LONGEST_RETRY_AFTER_SECONDS) if seconds > 0 else None
