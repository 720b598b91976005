"""A proxy on loopback that cuts answers short, as a network does."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class CuttingProxy:
    """Passes one request a connection on to a server of this machine, and its answer back: of the
    first ones only so many bytes as `cut_after` has, of those after them all."""

    def __init__(self, cut_after: list[int]) -> None:
        self.requests: list[bytes] = []
        self._cut_after = list(cut_after)
        self._serving: set[asyncio.Task[None]] = set()
        self._target = 0
        self._port = 0

    def address(self, url: str) -> str:
        """Return the address below which this proxy has what a server has at `url`."""
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1" and parts.port
        self._target = parts.port
        return urlunsplit(parts._replace(netloc=f"127.0.0.1:{self._port}"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["CuttingProxy"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await asyncio.gather(*self._serving)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        await task

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        upstream, to_upstream = await asyncio.open_connection("127.0.0.1", self._target)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            left = self._cut_after.pop(0) if self._cut_after else 2**62
            to_upstream.write(head.replace(b"keep-alive", b"close"))
            while left and (piece := await upstream.read(min(left, 65536))):
                left -= len(piece)
                writer.write(piece)
                await writer.drain()
        for each in (to_upstream, writer):
            each.close()
            with suppress(ConnectionError):
                await each.wait_closed()
