"""The outer edge of the service: who is calling, by which scheme, with one credential at most, and
none in clear text.

X-Forwarded-For and X-Forwarded-Proto are believed of trusted proxies alone, and after this every
other part may rely on `scope["client"]` and `scope["scheme"]`. No other header of that kind means
anything here. The servers in front of us must leave the headers alone: uvicorn is started with
`--no-proxy-headers`.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from control_plane.env import Network
from gpu_workers.protocol.request_id import new_request_id
from inference.errors import ClearTextRefused, InferenceError, RepeatedAuthorization
from inference.openai_api.responses import error_json, send_error

Address = IPv4Address | IPv6Address

SESSION_COOKIE: Final = "penstock_session"
_SECURE: Final = {"http": "https", "ws": "wss"}
_SECURE_SCHEMES: Final = frozenset(_SECURE.values())


class Edge:
    """Reads what trusted proxies say of a connection, and detects requests that others can read."""

    def __init__(
        self, *, trusted_proxies: Iterable[Network] = (), allow_clear_text: bool = False
    ) -> None:
        self._trusted_proxies = tuple(trusted_proxies)
        self._allow_clear_text = allow_clear_text

    def take_in(self, scope: Any) -> bool:
        """Set the scope's client and scheme to those of the caller. Return True if the request came
        in clear text from another machine where that is not allowed."""
        client = scope.get("client")
        peer = _address(client[0]) if client else None
        is_forwarded = False
        if self._trusted_proxies and self._is_trusted(peer):
            is_forwarded = self._believe(scope, peer)
        if self._allow_clear_text or scope.get("scheme", "http") in _SECURE_SCHEMES:
            return False
        # A peer without an address came by a socket in this machine's file system.
        is_here = client is None or (peer is not None and peer.is_loopback)
        return is_forwarded or not is_here

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(address in proxy for proxy in self._trusted_proxies)

    def _believe(self, scope: Any, peer: Address | None) -> bool:
        """Apply the headers of a trusted proxy; return whether there were any."""
        hops = _values(scope, b"x-forwarded-for")
        schemes = _values(scope, b"x-forwarded-proto")
        has_spoken = bool(hops or schemes)
        caller = peer
        # From hop to hop away from us, as long as the one that names the next is to be believed.
        while hops and self._is_trusted(caller) and (hop := _address(hops.pop())) is not None:
            caller = hop
        if caller != peer:
            scope["client"] = (str(caller), 0)
        # Several proxies name several schemes: in clear text on one hop is in clear text.
        scheme = scope.get("scheme", "http")
        if schemes and all(each.lower() in _SECURE_SCHEMES for each in schemes):
            scope["scheme"] = _SECURE.get(scheme, scheme)
        elif any(each.lower() in _SECURE for each in schemes):
            scope["scheme"] = "ws" if scope["type"] == "websocket" else "http"
        return has_spoken


# Never a redirect: the credential has been on the wire by then, and a client that follows one sends
# it so every time.
CLEAR_TEXT: Final = ClearTextRefused(
    "This came in clear text, where others can read API keys and passwords: use https, or wss for "
    "websockets, and replace what was sent like this. If a proxy of yours ends TLS, name it in "
    "PENSTOCK_TRUSTED_PROXIES and let it send X-Forwarded-Proto."
)
TWO_CREDENTIALS: Final = RepeatedAuthorization(
    "The request has more than one Authorization header, and which of them counts is not defined: "
    "send one. A proxy or a client library may add its own to yours."
)


async def refuse(error: InferenceError, scope: Any, receive: Any, send: Any) -> None:
    """Answer a request, or the opening of a websocket, with an error before anybody reads it."""
    if scope["type"] == "http":
        await send_error(send, new_request_id(), error)
        return
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 4403})
        return
    headers = [(b"content-type", b"application/json")]
    await send(
        {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    )
    await send({"type": "websocket.http.response.body", "body": error_json(error.to_wire())})


def has_two_credentials(scope: Any) -> bool:
    """Return whether a proxy before us and we might act for two different callers."""
    return [name for name, _ in scope.get("headers", ())].count(b"authorization") > 1


def bears_credential(scope: Any) -> bool:
    """Return whether an HTTP request comes with a token or with a session of ours."""
    session = f"{SESSION_COOKIE}=".encode()
    return any(
        name == b"authorization" or (name == b"cookie" and session in value)
        for name, value in scope["headers"]
    )


def _values(scope: Any, wanted: bytes) -> list[str]:
    """Return the values of a header that may be repeated, in order."""
    lines = [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]
    return [word.strip() for word in ",".join(lines).split(",") if word.strip()]


@lru_cache(maxsize=4096)
def _address(text: str) -> Address | None:
    """Parse an address as servers and proxies write it, with or without port, or return None."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
