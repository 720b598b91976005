"""Where webhooks may go: what a URL may look like, and which addresses may be connected to.

A URL names a host, and whoever runs the host's DNS says what address that is, each time anew. So
the text is checked when it is taken in, and the addresses are checked again for every connection,
which then goes to an address that was checked (`sending`).
"""

import ipaddress
import re
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from tenants.isolation.scoping import give_connection_back
from tenants.webhooks.look_ups import MOST_WAITING, LookUps, TooManyLookUps

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_ADDRESSES: Final = 16
_RESOLVE_SECONDS: Final = 5.0
_LOOK_UPS: Final = LookUps()
# Each holds a thread of the web process for as long as it waits.
_WAITING_AT_DOORS: Final = 4
_HTTPS_PORT: Final = 443
_LOWEST_OTHER_PORT: Final = 1024

# The IANA registry of special-purpose addresses, written out: Python's own list differs from
# version to version. 168.63.129.16 is what Azure's machines reach their host at.
_NOT_PUBLIC_V4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",
        ),
    )
)
# Of IPv6 only global unicast is taken, but for these in it.
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6: Final = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20"))
)
# Addresses that stand for one of IPv4, by the bits that it takes from the right.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER: Final = re.compile(r"([0-9]+|0x[0-9a-f]*)", re.ASCII)
_PRINTABLE: Final = re.compile(r"[!-~]+", re.ASCII)


class Refused(ValueError):
    """Base. `code` is the rule that refuses, in a word for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UrlRefused(Refused):
    """This URL is not for webhooks; the text says why."""


class AddressRefused(Refused):
    """Its host has an address that nothing is sent to; the text says why and not which, since
    whoever asks could learn the names of a private network by it."""


class Unresolvable(Refused):
    """Its host has no address, or the answer did not come in time."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A URL in its parts, as they are sent: nothing reads the text a second time."""

    scheme: str
    host: str  # without brackets
    port: int
    path: str  # with its query

    @property
    def is_https(self) -> bool:
        return self.scheme == "https"

    @property
    def literal(self) -> Address | None:
        """Return the host if it is an address, otherwise None."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


def parse_url(url: str) -> Target:
    """Parse and check a URL's text; asks no DNS. Raises `UrlRefused`."""
    if not _PRINTABLE.fullmatch(url) or any(letter in url for letter in '\\"<>^`{|}'):
        raise UrlRefused(
            "letters", "A URL has no spaces, and other letters than ASCII's are written %xx."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").removesuffix(".")
    except ValueError:
        raise UrlRefused(
            "no_url", "This is no URL like https://hooks.example.com/penstock."
        ) from None
    schemes = ("https", "http") if settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK else ("https",)
    if parts.scheme not in schemes:
        raise UrlRefused("scheme", "A webhook's URL begins with https://.")
    if "@" in parts.netloc:
        raise UrlRefused(
            "user_name", "A webhook's URL holds no user name or password; deliveries are signed."
        )
    if "#" in url:
        raise UrlRefused("fragment", "A webhook's URL has no part behind a #.")
    target = Target(
        scheme=parts.scheme,
        host=_checked_host(host),
        port=(_HTTPS_PORT if parts.scheme == "https" else 80) if port is None else port,
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )
    if target.port < _LOWEST_OTHER_PORT and port not in (None, _HTTPS_PORT):
        raise UrlRefused("port", "A webhook's port is 443 or one from 1024 on.")
    return target


def check_text(url: str) -> Target:
    """Check what can be known of a URL without asking anybody: its text, and its host if that is an
    address. Raises `UrlRefused` and `AddressRefused`."""
    target = parse_url(url)
    if target.literal is not None:
        check_addresses(target, [target.literal])
    return target


def check_reachable(url: str, *, owner: str) -> Target:
    """Check what can be known of a URL now: its text, and where its host's addresses lie. Asks the
    DNS, for seconds at most, so call it while no transaction is open; the look-up counts as the
    owner's. Raises `UrlRefused`, `AddressRefused` and `Unresolvable`."""
    target = check_text(url)
    if target.literal is not None:
        return target
    give_connection_back()
    asked = resolve(target, owner=owner, waiting_at_most=_WAITING_AT_DOORS)
    try:
        check_addresses(target, asked.result(_RESOLVE_SECONDS))
    except FutureTimeout:
        asked.cancel()
        raise Unresolvable("timeout", "The DNS did not answer in time; try again.") from None
    return target


def resolve(
    target: Target, *, owner: str, waiting_at_most: int = MOST_WAITING
) -> Future[list[Address]]:
    """Return all addresses of a target's host, at least one, asked for in a thread that nobody has
    to wait for; `owner` is whose name it is. Raises `Unresolvable` where too many of the owner's
    are asked for already, and the future if there is no address."""
    try:
        return _LOOK_UPS.submit(owner, lambda: _resolve(target), waiting_at_most=waiting_at_most)
    except TooManyLookUps:
        raise Unresolvable(
            "too_many", "Too many names are being looked up already; try again in a minute."
        ) from None


def check_addresses(target: Target, addresses: Sequence[Address]) -> None:
    """Check all addresses: where one may not be connected to, none is. Raises `AddressRefused`."""
    if not addresses or len(addresses) > MAX_ADDRESSES:
        raise AddressRefused(
            "number_of_addresses", f"The host of this URL has none or more than {MAX_ADDRESSES}."
        )
    for address in addresses:
        if address.is_loopback and settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK:
            continue
        if not target.is_https:
            raise AddressRefused(
                "clear_text", "Without https only this machine itself can be reached."
            )
        if not is_public(address):
            raise AddressRefused(
                "not_public",
                "The host of this URL lies in a private, local or reserved network; webhooks go "
                "to public addresses only.",
            )
        if any(_embedded(address) in network for network in _denied()):
            raise AddressRefused(
                "denied_network", "The operator of the service does not let webhooks go there."
            )


def is_public(address: Address) -> bool:
    """Return whether it is a unicast address of the public internet."""
    address = _embedded(address)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return (
        address.scope_id is None
        and address in _GLOBAL_UNICAST
        and not any(address in network for network in _NOT_PUBLIC_V6)
    )


def _resolve(target: Target) -> list[Address]:
    if target.literal is not None:
        return [target.literal]
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unresolvable(
            "no_address", "The host of this URL has no address in the DNS."
        ) from None
    return list(dict.fromkeys(ipaddress.ip_address(str(place[0])) for *_, place in found))


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address leads to, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _6TO4:
        return ipaddress.IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return address


def _denied() -> tuple[Network, ...]:
    denied: tuple[Network, ...] = settings.PENSTOCK_WEBHOOK_DENIED_NETWORKS
    return denied


def _checked_host(host: str) -> str:
    """Return the host in lower case. Raises `UrlRefused`, also for what only some programs read as
    an address (`2130706433`, `0x7f.1`, `127.1`)."""
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            address = None
        if address is None or address.scope_id is not None:
            raise UrlRefused("ipv6", "The address in this URL's brackets is none of IPv6.")
        return address.compressed
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise UrlRefused(
                "ipv4", "An address of IPv4 is written as four decimal numbers: 198.51.100.7."
            ) from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise UrlRefused(
            "host",
            "This URL's host is no name like hooks.example.com; write an international name in "
            "its ASCII form (xn--…).",
        )
    if len(labels) == 1 and not (host == "localhost" and settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK):
        raise UrlRefused(
            "no_dot", "This URL's host has no dot; webhooks go to hosts on the internet."
        )
    return host
