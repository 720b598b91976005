"""Fetches what a source names, over HTTP, and no byte more than it says there are."""

import asyncio
import re
from collections.abc import Sequence
from typing import BinaryIO, Final

import httpx

from gpu_workers.protocol.adapters import AdapterSource

CONNECT_SECONDS: Final = 5.0
STALL_SECONDS: Final = 10.0
# How long a whole fetch may take: so long, and as long again as its bytes take at the least rate.
LEAST_SECONDS: Final = 30.0
LEAST_BYTES_PER_SECOND: Final = 2 * 1024 * 1024
# Before a fetch that was cut goes on, each time: a store that restarts is back after a few seconds.
PAUSES_SECONDS: Final = (0.2, 1.0, 3.0)
_CHUNK_BYTES: Final = 1024 * 1024
# A strong one (RFC 9110, 8.8.3): of the same bytes, and fit to be sent back.
_STRONG_ETAG: Final = re.compile(r'"[!#-~]{1,200}"')


class FetchFailed(RuntimeError):
    """The store did not give what the source names. The message has no part of the URL, which is
    signed: whoever reads it may fetch."""


class StoreAway(FetchFailed):
    """The store is not there, or too slow, whatever it is asked for."""


class _Cut(StoreAway):
    """It has given a part, and may give the rest."""


class Fetches:
    """One client for all fetches: it follows no redirect, and keeps no cookie that it is sent."""

    def __init__(
        self,
        *,
        stall_seconds: float = STALL_SECONDS,
        least_seconds: float = LEAST_SECONDS,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
    ) -> None:
        self._least_seconds = least_seconds
        self._pauses_seconds = pauses_seconds
        timeout = httpx.Timeout(stall_seconds, connect=CONNECT_SECONDS)
        self._client = httpx.AsyncClient(timeout=timeout, headers={"accept-encoding": "identity"})

    async def fetch(self, source: AdapterSource, file: BinaryIO) -> None:
        """Write the source's bytes, as many as it says, into an empty file. What is cut goes on
        from there a few times, where the store says what it has by an ETag; whether the parts are
        of one whole the digest tells, as of any fetch. Raises `FetchFailed`, and `OSError` where
        the disk refuses."""
        seconds = self._least_seconds + source.size_bytes / LEAST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                await self._fetch(source.url, _Body(file, source.size_bytes))
        except TimeoutError as error:
            raise StoreAway(f"it took longer than {seconds:.0f} s") from error
        # Their text may hold the URL; the traceback too, and is not shown.
        except httpx.TransportError as error:
            raise StoreAway(type(error).__name__) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FetchFailed(type(error).__name__) from None
        finally:
            self._client.cookies.clear()

    async def close(self) -> None:
        await self._client.aclose()

    async def _fetch(self, url: str, body: "_Body") -> None:
        pauses = iter(self._pauses_seconds)
        while True:
            try:
                await self._receive(url, body)
                break
            except (_Cut, httpx.TransportError):
                pause = next(pauses, None)
                if pause is None or not body.may_go_on:
                    raise
            await asyncio.sleep(pause)

    async def _receive(self, url: str, body: "_Body") -> None:
        async with self._client.stream("GET", url, headers=body.asks_for) as response:
            body.begin(response)
            try:
                async for piece in response.aiter_raw():
                    await body.add(piece)
            except httpx.TransportError:
                await body.flush()  # the rest goes behind it
                if not body.is_whole:
                    raise
        await body.flush()
        body.check_whole()


class _Body:
    """What has come so far of one file, and what of it is asked for next."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._received = 0
        self._unwritten = bytearray()
        self._etag = ""

    @property
    def is_whole(self) -> bool:
        return self._received == self._size_bytes

    @property
    def may_go_on(self) -> bool:
        return self._received > 0 and self._etag != ""

    @property
    def asks_for(self) -> dict[str, str]:
        """Return headers: for the rest, and for the whole if that is not of the same bytes."""
        if not self.may_go_on:
            return {}
        return {"range": f"bytes={self._received}-", "if-range": self._etag}

    def begin(self, response: httpx.Response) -> None:
        """Take an answer's head. Raises `FetchFailed` for one that is neither the whole nor the
        rest."""
        status, headers = response.status_code, response.headers
        if status == httpx.codes.PARTIAL_CONTENT and self.may_go_on:
            rest = f"bytes {self._received}-{self._size_bytes - 1}/{self._size_bytes}"
            if headers.get("content-range") != rest or headers.get("etag") != self._etag:
                raise FetchFailed("the store went on with something else")
            return
        if status != httpx.codes.OK:
            problem = f"the store answered {status}"
            raise _Cut(problem) if status >= 500 else FetchFailed(problem)
        self._begin_anew()
        said = headers.get("content-length")
        if said is not None and said != str(self._size_bytes):
            raise FetchFailed(f"expected {self._size_bytes} bytes, and the store has {said[:20]}")
        etag = headers.get("etag", "")
        self._etag = etag if _STRONG_ETAG.fullmatch(etag) else ""

    async def add(self, piece: bytes) -> None:
        """Take the next bytes. Raises `FetchFailed` for those beyond the last."""
        self._received += len(piece)
        if self._received > self._size_bytes:
            raise FetchFailed(f"expected {self._size_bytes} bytes, and more came")
        self._unwritten += piece
        if len(self._unwritten) >= _CHUNK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        await asyncio.to_thread(self._file.write, self._unwritten)
        self._unwritten = bytearray()

    def check_whole(self) -> None:
        if not self.is_whole:
            raise _Cut(f"expected {self._size_bytes} bytes, and {self._received} came")

    def _begin_anew(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._received = 0
