"""A test that needs more than this checkout and loopback fails, and says what it needs."""

import socket
from pathlib import Path

import pytest

from tests.gate.reach import Reach
from tests.support.places import free_port


@pytest.mark.parametrize(
    ("event", "arguments", "said"),
    [
        (
            "socket.connect",
            (None, ("192.0.2.7", 443)),
            "needs the network: it asks 192.0.2.7, port",
        ),
        ("socket.connect", (None, ("127.0.0.1", 443)), None),
        ("socket.connect", (None, ("::1", 443, 0, 0)), None),
        ("socket.connect", (None, "/run/a.socket"), None),
        ("socket.sendto", (None, ("192.0.2.53", 53)), "needs the network: it asks 192.0.2.53"),
        ("socket.getaddrinfo", ("packages.org", 443, 0, 0, 0), "it looks up packages.org"),
        ("socket.getaddrinfo", (b"packages.org", 443, 0, 0, 0), "it looks up packages.org"),
        ("socket.getaddrinfo", ("hooks.example", 443, 0, 0, 0), None),
        ("socket.getaddrinfo", ("localhost", 443, 0, 0, 0), None),
        ("socket.getaddrinfo", (None, 443, 0, 0, 0), None),
        ("socket.bind", (None, ("127.0.0.1", 6379)), "needs the fixed port 6379"),
        ("socket.bind", (None, ("127.0.0.1", 0)), None),
        ("socket.bind", (None, "/run/a.socket"), None),
        ("os.remove", ("/somewhere/other", -1), None),
    ],
)
def test_what_is_out_of_reach_is_said(
    event: str, arguments: tuple[object, ...], said: str | None
) -> None:
    complaint = Reach(Path("/somewhere/penstock")).complaint_of(event, arguments)
    assert complaint == said if said is None else said in str(complaint)


@pytest.mark.parametrize(
    ("file", "is_out_of_reach"),
    [
        ("/somewhere/other/file", True),
        (b"/somewhere/other/file", True),
        (Path("/somewhere/penstock/../other/file"), True),
        ("/somewhere/penstock/file", False),
        ("/usr/lib/file", False),
        (3, False),
    ],
)
def test_a_file_beside_the_checkout_is_out_of_reach(file: object, is_out_of_reach: bool) -> None:
    complaint = Reach(Path("/somewhere/penstock")).complaint_of("open", (file, "r", 0))
    assert (complaint is not None) == is_out_of_reach


def test_what_lies_beside_a_checkout_in_somebodys_home_is_not_of_another_one() -> None:
    reach = Reach(Path.home() / "penstock")
    assert reach.complaint_of("open", (str(Path.home() / ".cache" / "fonts"), "r", 0)) is None


def test_a_port_that_nobody_has_is_within_reach() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
