"""Clients that stop reading: a connection that takes nothing in for too long is ended."""

import asyncio
import fcntl
import sys
import termios
from typing import Any, Final

import structlog
from prometheus_client import Counter

STALLED = Counter(
    "penstock_gateway_stalled_connections_total", "Connections ended: they took nothing in."
)

_log = structlog.get_logger(__name__)
_UNKNOWN: Final = -1


class Stalled(OSError):
    """The client took nothing in for too long, and its connection is no more: what ASGI raises
    where a client is gone."""


async def send_unless_stalled(send: Any, seconds: float, message: Any) -> None:
    """Send as ASGI does, which waits while the server's buffer of the connection is full. Raises
    `Stalled` when the client has not taken one byte in this time.

    uvicorn waits before it writes, so what was interrupted there may be sent again.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None and not transport.get_write_buffer_size():
        await send(message)  # all went out so far: nothing to wait for
        return
    while True:
        unread = _unread_bytes(transport)
        try:
            async with asyncio.timeout(seconds):
                await send(message)
                return
        except TimeoutError:
            if unread != _UNKNOWN and _unread_bytes(transport) < unread:
                continue
        STALLED.inc()
        _log.warning("connection_stalled", seconds=seconds, unread_bytes=unread)
        if transport is not None:
            # ASGI's own end would wait for the buffer to be read, which is what does not happen.
            transport.abort()
            await asyncio.sleep(0)
        raise Stalled(f"the client took nothing in for {seconds:g} s")


def send_at_once(send: Any, message: Any) -> bool:
    """Send as ASGI does if nothing has to be waited for, as all that went before is out; return
    whether. Never raises: whoever then waits for its turn hears of an error."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is None or transport.get_write_buffer_size():
        return False
    sending = send(message)
    try:
        sending.send(None)
    except StopIteration:
        return True
    except Exception:  # noqa: BLE001 - it comes again where it can be raised
        return False
    sending.close()  # uvicorn waits before it writes
    return False


def _unread_bytes(transport: Any) -> int:
    """Return what the client has not taken in yet: in the server's buffer, and in the kernel's,
    which takes more only when a good part of it is free."""
    if transport is None:
        return _UNKNOWN
    unread = int(transport.get_write_buffer_size())
    connection = transport.get_extra_info("socket")
    try:
        queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError, AttributeError):
        return unread  # not on this system, or closed by now
    return unread + int.from_bytes(queued, sys.byteorder)
