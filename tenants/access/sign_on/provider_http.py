"""The HTTP session that speaks to providers. A tenant has named them: so only public addresses are
connected to, no redirect is followed, and neither time nor size is without a bound."""

import asyncio
import io
import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpcore2
import requests
from requests.adapters import BaseAdapter

from tenants.isolation.scoping import give_connection_back
from tenants.webhooks import addresses
from tenants.webhooks.addresses import AddressRefused, Target, Unresolvable, UrlRefused
from tenants.webhooks.checked_network import CheckedNetwork

TOTAL_SECONDS: Final = 10.0
# Discovery documents and key sets are a few kilobytes; large tenants' tokens of groups are tens.
MAX_ANSWER_BYTES: Final = 256 * 1024


class ProviderUnreachable(requests.ConnectionError):  # type: ignore[misc]
    """`code`: `address_refused`, `timeout`, `redirect`, `too_large` or `connect_failed`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def provider_session() -> requests.Session:
    """Return a session of `requests` that raises `ProviderUnreachable`. No proxy, certificate or
    password of the environment is used."""
    session = requests.Session()
    session.trust_env = False
    # What comes packed could be of any size unpacked.
    session.headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    for scheme in ("https://", "http://"):
        session.mount(scheme, _CheckedAdapter())
    return session


class _CheckedAdapter(BaseAdapter):  # type: ignore[misc]
    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._ssl_context = ssl_context

    def send(self, request: Any, *_: Any, **__: Any) -> Any:
        """Send one request and read its answer; blocks for at most `TOTAL_SECONDS`, without a
        connection to the database where no transaction needs it."""
        give_connection_back()
        body = request.body or b""
        try:
            target = addresses.parse_url(request.url)
            status, headers, content = asyncio.run(
                _exchange(
                    target,
                    request.method,
                    request.headers,
                    body.encode() if isinstance(body, str) else body,
                    self._ssl_context,
                )
            )
        except ProviderUnreachable:
            raise
        except (UrlRefused, AddressRefused):
            raise ProviderUnreachable("address_refused") from None
        except (TimeoutError, httpcore2.TimeoutException):
            raise ProviderUnreachable("timeout") from None
        except (Unresolvable, httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            raise ProviderUnreachable("connect_failed") from None
        if 300 <= status < 400:
            raise ProviderUnreachable("redirect")
        return _response(request, status, headers, content)

    def close(self) -> None:
        """Hold nothing open: each request has its own connection."""


async def _exchange(
    target: Target,
    method: str,
    headers: Mapping[str, str],
    body: bytes,
    ssl_context: ssl.SSLContext | None,
) -> tuple[int, dict[str, str], bytes]:
    url = httpcore2.URL(
        scheme=target.scheme.encode(),
        host=(f"[{target.host}]" if ":" in target.host else target.host).encode(),
        port=target.port,
        target=target.path.encode(),
    )
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    async with (
        asyncio.timeout(TOTAL_SECONDS),
        httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=1,
            network_backend=CheckedNetwork(target, owner=f"provider {target.host}"),
        ) as pool,
        pool.stream(method, url, headers=sent, content=body) as response,
    ):
        given = {
            bytes(name).decode("latin-1"): bytes(value).decode("latin-1")
            for name, value in response.headers
        }
        content = b""
        async for chunk in response.aiter_stream():
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise ProviderUnreachable("too_large")
        return response.status, given, content


def _response(request: Any, status: int, headers: Mapping[str, str], content: bytes) -> Any:
    response = requests.Response()
    response.status_code = status
    response.headers.update({"content-type": "", **headers})
    response.raw = io.BytesIO(content)
    response.encoding = "utf-8"
    response.request, response.url = request, request.url
    return response
