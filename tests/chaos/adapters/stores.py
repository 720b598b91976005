"""The stores of blobs that the drills take away and give back: a folder, and S3 behind a way that
can be cut."""

import asyncio
import shutil
import tempfile
from asyncio import StreamReader, StreamWriter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tests.support.blobs.s3_server import BUCKET, CREDENTIALS, s3_server
from tests.support.places import LOOPBACK, free_port


class Store(Protocol):
    """Where blobs lie. `away` is as if its machine were gone, `back` as if it never had been."""

    url: str
    environ: dict[str, str]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def away(self) -> None: ...

    async def back(self) -> None: ...


class FolderStore:
    """A folder; when it is away there is something else where it was, as where a disk is not
    mounted."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-blobs-"))
        self.folder = folder
        self.url = f"file:{folder}"
        self.environ: dict[str, str] = {}
        self._aside = folder.with_name(f"{folder.name}-aside")

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    async def away(self) -> None:
        self.folder.rename(self._aside)
        self.folder.touch()

    async def back(self) -> None:
        self.folder.unlink()
        self._aside.rename(self.folder)


class BucketStore:
    """moto's server. It keeps all in memory, so not it is killed but every connection to it."""

    def __init__(self) -> None:
        self._way = Way()
        self._running = ExitStack()
        self.url = (
            f"s3://{BUCKET}/drills?endpoint=http://{LOOPBACK}:{self._way.port}&region=us-east-1"
        )
        self.environ = {f"AWS_{name.upper()}": value for name, value in CREDENTIALS.items()}

    async def start(self) -> None:
        server = await asyncio.to_thread(self._running.enter_context, s3_server())
        self._way.leads_to = urlsplit(server.endpoint).port or 0
        await self._way.open()

    async def stop(self) -> None:
        await self._way.cut()
        await asyncio.to_thread(self._running.close)

    async def away(self) -> None:
        await self._way.cut()

    async def back(self) -> None:
        await self._way.open()


class Way:
    """A port of ours that leads to another, until it is cut."""

    def __init__(self) -> None:
        self.port = free_port()
        self.leads_to = 0
        self._server: asyncio.Server | None = None
        self._ends: set[StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass, LOOPBACK, self.port)

    async def cut(self) -> None:
        """Nobody gets through any more, and whoever is through is cut off."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for each in self._ends:
            each.transport.abort()

    async def _pass(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            there, back = await asyncio.open_connection(LOOPBACK, self.leads_to)
            ends = {writer, back}
            self._ends |= ends
            try:
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
            finally:
                self._ends -= ends
                for each in ends:
                    each.close()


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
