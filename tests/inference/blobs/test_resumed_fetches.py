"""What workers fetch goes on after a cut, from S3's own addresses as from those of a folder."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.core.asgi import get_asgi_application
from pytest_django import Settings

from gpu_workers.adapters.fetch import Fetches, FetchFailed
from gpu_workers.protocol.adapters import AdapterSource
from inference.blobs.opening import blob_store
from inference.blobs.store import BlobStore
from tests.support.blobs.cutting_proxy import CuttingProxy
from tests.support.gateways.service import serving

DATA = bytes(range(256)) * 20_000
PATH = "adapters/0123"


def a_source(url: str) -> AdapterSource:
    return AdapterSource(
        adapter="a" * 64, url=url, size_bytes=len(DATA), sha256=b"", key=b"", expires_at_ms=2**52
    )


@asynccontextmanager
async def stored(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[BlobStore, str]]:
    """Store the data; yield the store and an address that is really served."""
    if kind == "s3":
        s3: BlobStore = request.getfixturevalue("s3_store")
        s3.put(PATH, [DATA])
        yield s3, s3.signed_url(PATH, 60)
        return
    settings: Settings = request.getfixturevalue("settings")
    folder: Path = request.getfixturevalue("tmp_path")
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{folder / 'served'}"
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    store = blob_store()
    store.put(PATH, [DATA])
    async with serving(get_asgi_application()) as url:
        parts = urlsplit(store.signed_url(PATH, 60))
        yield store, f"{url}{parts.path}?{parts.query}"


@pytest.mark.parametrize("kind", ["folder", "s3"])
async def test_a_fetch_goes_on_after_each_cut(kind: str, request: pytest.FixtureRequest) -> None:
    fetches = Fetches(pauses_seconds=(0, 0, 0))
    async with (
        stored(kind, request) as (_, url),
        CuttingProxy([1_000_000, 2_000_000, 5_000]).running() as proxy,
    ):
        file = BytesIO()
        await fetches.fetch(a_source(proxy.address(url)), file)
    await fetches.close()
    assert file.getvalue() == DATA
    asked = [re.search(rb"(?i)\r\nrange: bytes=(\d+)-", head) for head in proxy.requests]
    begun = [int(each[1]) for each in asked if each]
    assert len(proxy.requests) == 4 and len(begun) == 3
    assert 900_000 < begun[0] < begun[1] < begun[2] < len(DATA)


@pytest.mark.parametrize("kind", ["folder", "s3"])
async def test_a_blob_that_changed_meanwhile_is_not_pieced_together(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """A store that knows no `If-Range` goes on with the other bytes, and says so: the fetch fails,
    and the next one gets them whole, as `AdapterSupply` asks twice."""
    fetches = Fetches(pauses_seconds=(0,))
    other = DATA[::-1]
    async with (
        stored(kind, request) as (store, url),
        CuttingProxy([1_000_000]).running() as proxy,
    ):

        class Watched(BytesIO):
            """Puts other bytes in the blob's place once some have come."""

            def write(self, data: object) -> int:
                if self.tell() == 0 and len(proxy.requests) == 1:
                    store.put(PATH, [other])
                return super().write(data)  # type: ignore[arg-type]

        source, file = a_source(proxy.address(url)), Watched()
        try:
            await fetches.fetch(source, file)
        except FetchFailed:
            assert kind == "s3"
            file = Watched()
            await fetches.fetch(source, file)
    await fetches.close()
    assert file.getvalue() == other
