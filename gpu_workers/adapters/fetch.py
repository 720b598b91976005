"""Fetches what a source names, over HTTP, and no byte more than it says there are."""

import asyncio
from typing import BinaryIO, Final

import httpx

from gpu_workers.protocol.adapters import AdapterSource

CONNECT_SECONDS: Final = 5.0
STALL_SECONDS: Final = 10.0
# How long a whole fetch may take: so long, and as long again as its bytes take at the least rate.
LEAST_SECONDS: Final = 30.0
LEAST_BYTES_PER_SECOND: Final = 2 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024


class FetchFailed(RuntimeError):
    """The store did not give what the source names. The message has no part of the URL, which is
    signed: whoever reads it may fetch."""


class Fetches:
    """One client for all fetches: it follows no redirect, and keeps no cookie that it is sent."""

    def __init__(
        self,
        *,
        stall_seconds: float = STALL_SECONDS,
        least_seconds: float = LEAST_SECONDS,
    ) -> None:
        self._least_seconds = least_seconds
        timeout = httpx.Timeout(stall_seconds, connect=CONNECT_SECONDS)
        self._client = httpx.AsyncClient(timeout=timeout, headers={"accept-encoding": "identity"})

    async def fetch(self, source: AdapterSource, file: BinaryIO) -> None:
        """Write the source's bytes, as many as it says. Raises `FetchFailed`, and `OSError` where
        the disk refuses."""
        seconds = self._least_seconds + source.size_bytes / LEAST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds), self._client.stream("GET", source.url) as response:
                await _receive(response, source.size_bytes, file)
        except TimeoutError as error:
            raise FetchFailed(f"it took longer than {seconds:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Its text may hold the URL; the traceback too, and is not shown.
            raise FetchFailed(type(error).__name__) from None
        finally:
            self._client.cookies.clear()

    async def close(self) -> None:
        await self._client.aclose()


async def _receive(response: httpx.Response, size_bytes: int, file: BinaryIO) -> None:
    if response.status_code != httpx.codes.OK:
        raise FetchFailed(f"the store answered {response.status_code}")
    said = response.headers.get("content-length")
    if said is not None and said != str(size_bytes):
        raise FetchFailed(f"expected {size_bytes} bytes, and the store has {said[:20]}")
    received = 0
    async for chunk in response.aiter_raw(_CHUNK_BYTES):
        received += len(chunk)
        if received > size_bytes:
            raise FetchFailed(f"expected {size_bytes} bytes, and more came")
        await asyncio.to_thread(file.write, chunk)
    if received != size_bytes:
        raise FetchFailed(f"expected {size_bytes} bytes, and {received} came")
