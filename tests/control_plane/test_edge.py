"""Who is calling, by which scheme, and what is refused; inference/test_edges has it served."""

from ipaddress import ip_network
from typing import Any

import pytest
from control_plane.edge import Edge
from control_plane.env import GatewayEnvironment
from control_plane.gateway import edge

ALICE, PROXY, INNER_PROXY = "203.0.113.7", "10.0.0.1", "10.0.0.2"
STRANGER = "198.51.100.9"
BEHIND_PROXIES = Edge(trusted_proxies=[ip_network("10.0.0.0/24"), ip_network("fd00::/8")])
BY_TLS = {"x-forwarded-for": ALICE, "x-forwarded-proto": "https"}


def a_scope(peer: str | None, headers: dict[str, str] | None = None, **changes: Any) -> Any:
    return {
        "type": "http",
        "scheme": "http",
        "path": "/v1/models",
        "client": (peer, 4711) if peer else None,
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
    } | changes


# Who ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "caller"),
    [
        (PROXY, ALICE, ALICE),
        (PROXY, f"{ALICE}:5000", ALICE),
        (PROXY, "[2001:db8::7]:5000", "2001:db8::7"),
        (PROXY, "2001:db8::7", "2001:db8::7"),
        (f"::ffff:{PROXY}", ALICE, ALICE),
        ("fd00::1", ALICE, ALICE),
        # What the caller wrote itself stands left of what the proxy saw.
        (PROXY, f"127.0.0.1, {ALICE}", ALICE),
        (PROXY, f"garbage, {ALICE}", ALICE),
        (PROXY, f"{ALICE}, {INNER_PROXY}", ALICE),
        (PROXY, INNER_PROXY, INNER_PROXY),
        # What cannot be read names nobody.
        (PROXY, "garbage", PROXY),
        (PROXY, f"{ALICE}, unknown", PROXY),
        (PROXY, "", PROXY),
        (PROXY, "1.2.3.4.5", PROXY),
        # Nobody asked these.
        (STRANGER, ALICE, STRANGER),
        ("127.0.0.1", ALICE, "127.0.0.1"),
    ],
)
def test_the_caller_is_the_nearest_address_that_no_trusted_proxy_has(
    peer: str, forwarded_for: str, caller: str
) -> None:
    scope = a_scope(peer, {"x-forwarded-for": forwarded_for})
    BEHIND_PROXIES.take_in(scope)
    assert scope["client"][0] == caller


def test_a_header_that_comes_twice_is_read_as_one() -> None:
    scope = a_scope(PROXY)
    scope["headers"] = [(b"x-forwarded-for", b"127.0.0.1"), (b"x-forwarded-for", ALICE.encode())]
    BEHIND_PROXIES.take_in(scope)
    assert scope["client"][0] == ALICE


# How ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "headers", "scheme", "is_refused"),
    [
        (PROXY, BY_TLS, "https", False),
        (PROXY, BY_TLS | {"x-forwarded-proto": "HTTPS"}, "https", False),
        (PROXY, BY_TLS | {"x-forwarded-proto": "https, https"}, "https", False),
        (PROXY, BY_TLS | {"x-forwarded-proto": "http, https"}, "http", True),
        (PROXY, BY_TLS | {"x-forwarded-proto": "http"}, "http", True),
        (PROXY, BY_TLS | {"x-forwarded-proto": "gopher"}, "http", True),
        (PROXY, {"x-forwarded-for": ALICE}, "http", True),
        (PROXY, {}, "http", True),
        (STRANGER, BY_TLS, "http", True),
        (STRANGER, {}, "http", True),
        ("not-an-address", {}, "http", True),
        ("127.0.0.1", {}, "http", False),
        ("127.0.0.1", BY_TLS, "http", False),
        ("::1", {}, "http", False),
        (None, {}, "http", False),
    ],
)
def test_clear_text_passes_from_this_machine_alone(
    peer: str | None, headers: dict[str, str], scheme: str, is_refused: bool
) -> None:
    scope = a_scope(peer, headers)
    assert BEHIND_PROXIES.take_in(scope) is is_refused
    assert scope["scheme"] == scheme


@pytest.mark.parametrize(
    "said",
    [{"x-forwarded-proto": "http"}, {"x-forwarded-for": ALICE}, {"x-forwarded-for": "garbage"}],
)
def test_what_a_trusted_proxy_on_this_machine_forwards_is_not_of_this_machine(
    said: dict[str, str],
) -> None:
    behind_loopback = Edge(trusted_proxies=[ip_network("127.0.0.1")])
    assert behind_loopback.take_in(a_scope("127.0.0.1", said))
    by_tls = said | {"x-forwarded-proto": "https"}
    assert not behind_loopback.take_in(a_scope("127.0.0.1", by_tls))
    assert not behind_loopback.take_in(a_scope("127.0.0.1"))


def test_a_connection_that_ends_its_tls_here_needs_no_proxy() -> None:
    assert not BEHIND_PROXIES.take_in(a_scope(STRANGER, scheme="https"))
    assert not BEHIND_PROXIES.take_in(a_scope(STRANGER, scheme="wss", type="websocket"))


def test_a_trusted_proxy_may_say_that_its_caller_had_no_tls() -> None:
    scope = a_scope(PROXY, BY_TLS | {"x-forwarded-proto": "http"}, scheme="https")
    assert BEHIND_PROXIES.take_in(scope)
    assert scope["scheme"] == "http"


def test_a_websocket_gets_a_scheme_of_websockets() -> None:
    scope = a_scope(PROXY, BY_TLS, scheme="ws", type="websocket")
    assert not BEHIND_PROXIES.take_in(scope)
    assert scope["scheme"] == "wss"


def test_the_environment_says_whom_the_edge_trusts() -> None:
    environ = {
        "PENSTOCK_API_KEY_PEPPER": "p" * 40,
        "PENSTOCK_GATEWAY_REDIS_URL": "redis://gateway:secret@dispatch:6379/0",
    }
    proxies = {"PENSTOCK_TRUSTED_PROXIES": "10.0.0.0/24"}
    for given, is_refused in (({}, True), (proxies, False)):
        env = GatewayEnvironment.from_environ(environ | given)
        assert edge(env).take_in(a_scope(PROXY, BY_TLS)) is is_refused
    open_env = GatewayEnvironment.from_environ(environ | {"PENSTOCK_ALLOW_CLEAR_TEXT": "1"})
    assert not edge(open_env).take_in(a_scope(STRANGER))


def test_a_closed_network_may_allow_clear_text() -> None:
    assert not Edge(allow_clear_text=True).take_in(a_scope(STRANGER))
