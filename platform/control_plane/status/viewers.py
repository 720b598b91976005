"""Who may see how the service does: whoever brings the operator's token, or is in a network that
may. Everybody else learns whether it is up."""

import hmac
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from control_plane.env import Network


class Viewers:
    """`token` is what a scraper has to bring to see everything; empty: nobody does."""

    def __init__(self, *, token: str = "", networks: Iterable[Network] = ()) -> None:
        self._token = token.encode()
        self._networks = tuple(networks)

    def is_token(self, given: bytes | None) -> bool:
        return bool(self._token) and hmac.compare_digest(given or b"", self._token)

    def is_near(self, address: str | None) -> bool:
        """Return whether a caller is in a network that may see; by a socket in this machine's file
        system, which has no address, it is."""
        if not address:
            return True
        try:
            caller = ip_address(address)
        except ValueError:
            return False
        mapped = caller.ipv4_mapped if isinstance(caller, IPv6Address) else None
        return any((mapped or caller) in network for network in self._networks)
