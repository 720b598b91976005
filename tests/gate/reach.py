"""What a test may reach: loopback, ports that nobody has, and this checkout. A pytest plugin, by
which whoever reaches further fails with a sentence that says so, whatever lies within reach here.

It hears what Python's own sockets and files do in the process of the tests (PEP 578); what the
programs do that they start, and libraries in C, it does not hear.
"""

import ipaddress
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.places import ROOT, given_ports

# This machine's own names, and those that no resolver knows (RFC 2606, RFC 6761).
_LOCALHOST: Final = "localhost"
# Who takes port 0 is given one of these, and may take it again.
_OF_THE_SYSTEM: Final = range(32_768, 65_536)
_OF_NOBODY: Final = (".localhost", ".invalid", ".test", ".example", "example.com", "example.org")


class OutOfReach(OSError):
    """What a test may not reach, as a sentence."""


class Reach:
    """Tells what is out of reach for the tests of `checkout`. Beside it lie other checkouts, unless
    it is a home or the folder of temporary files that it lies in."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._beside = checkout.parent
        shared = (Path("/"), Path.home(), Path(tempfile.gettempdir()).resolve())
        self._has_others_beside = self._beside not in shared

    def complaint_of(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        """Return what is wrong with an event of `sys.addaudithook`; None: nothing."""
        if event in ("socket.connect", "socket.sendto"):
            return self._of_connection(arguments[1])
        if event == "socket.getaddrinfo":
            return self._of_name(arguments[0])
        if event == "socket.bind":
            return self._of_port(arguments[1])
        if event == "open":
            return self._of_file(arguments[0])
        return None

    def _of_connection(self, address: Any) -> str | None:
        if not isinstance(address, tuple) or _is_loopback(address[0]):
            return None  # nobody else's machine; what is no tuple is a path
        return (
            f"A test needs the network: it asks {address[0]}, port {address[1]}. Let it talk to a "
            "server of its own on loopback."
        )

    def _of_name(self, host: str | bytes | None) -> str | None:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if name is None or name == _LOCALHOST or name.endswith(_OF_NOBODY) or _is_address(name):
            return None
        return f"A test needs the network: it looks up {name}. Give it an address, or a resolver."

    def _of_port(self, address: Any) -> str | None:
        if not isinstance(address, tuple) or address[1] in given_ports:
            return None
        if address[1] == 0 or address[1] in _OF_THE_SYSTEM:
            return None
        return (
            f"A test needs the fixed port {address[1]}, which something else may have. Let it take "
            "port 0, or one of tests.support.places.free_port()."
        )

    def _of_file(self, path: Any) -> str | None:
        if not self._has_others_beside or not isinstance(path, str | bytes | os.PathLike):
            return None
        file = Path(os.path.normpath(Path(os.fsdecode(path)).absolute()))
        if not file.is_relative_to(self._beside) or file.is_relative_to(self._checkout):
            return None
        return (
            f"A test needs {file}, which is no part of this checkout, {self._checkout}. Put what "
            "it needs into the checkout, or have it made."
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return not host
    return True


def _is_loopback(host: str) -> bool:
    if not host or not _is_address(host):
        return True  # a name is judged where it is looked up
    address = ipaddress.ip_address(host.partition("%")[0])
    return address.is_loopback or address.is_unspecified


class _Ear:
    """Hears the process while a test runs."""

    def __init__(self) -> None:
        self.is_open = False
        self.complaints: list[str] = []
        self._reach = Reach(ROOT)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_open and (complaint := self._reach.complaint_of(event, arguments)):
            self.complaints.append(complaint)
            raise OutOfReach(complaint)


_ear: Final = _Ear()
sys.addaudithook(_ear.hear)


@pytest.fixture(autouse=True)
def _reaches_no_further() -> Iterator[None]:
    """Fails also where somebody has caught the error."""
    _ear.complaints = []
    _ear.is_open = True
    yield
    _ear.is_open = False
    if _ear.complaints:
        pytest.fail("\n".join(_ear.complaints))
