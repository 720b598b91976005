"""Connections to addresses that were checked, and to nothing else: for all that goes to a server
which a tenant has named."""

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Any, Final

import httpcore2
from httpcore2 import AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream

from tenants.webhooks import addresses
from tenants.webhooks.addresses import Address, AddressRefused, Target

CONNECT_SECONDS: Final = 5.0
_TRIED_ADDRESSES: Final = 3


class CheckedNetwork(AsyncNetworkBackend):
    """Connects to addresses of one target's host, after it has looked at all of them."""

    def __init__(self, target: Target, *, owner: str) -> None:
        """`owner` is whose server it is: its look-up waits for theirs alone."""
        self._target = target
        self._owner = owner
        self._network = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        found = await asyncio.wrap_future(addresses.resolve(self._target, owner=self._owner))
        addresses.check_addresses(self._target, found)
        problem: Exception = httpcore2.ConnectError()
        for address in found[:_TRIED_ADDRESSES]:
            try:
                stream = await self._network.connect_tcp(
                    address.compressed,
                    self._target.port,
                    timeout=CONNECT_SECONDS,
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
                continue
            if peer_address(stream) != address:
                await stream.aclose()
                raise AddressRefused(
                    "another_address", "The connection led to another address than was checked."
                )
            return stream
        raise problem

    async def connect_unix_socket(self, *_: Any, **__: Any) -> AsyncNetworkStream:
        raise AddressRefused(
            "unix_socket", "Webhooks go to addresses, not to sockets of this machine."
        )

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


def peer_address(stream: AsyncNetworkStream) -> Address | None:
    """Return the address that a connection led to, None if that cannot be known."""
    place = stream.get_extra_info("server_addr")
    return None if not place else ipaddress.ip_address(str(place[0]))
