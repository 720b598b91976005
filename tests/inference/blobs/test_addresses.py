"""Signed addresses: S3's own, and those of a folder, which Django answers."""

import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from django.core.asgi import get_asgi_application
from pytest_django import Settings

from inference.blobs.addresses import FolderSigner
from inference.blobs.opening import blob_store
from inference.blobs.store import BlobStore
from tests.support.gateways.service import serving
from tests.support.places import NO_TLS

DATA = bytes(range(256)) * 20_000
PATH = "adapters/0123/4567"

Get = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def store(settings: Settings, tmp_path: Path) -> BlobStore:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{tmp_path / 'blobs'}"
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    store = blob_store()
    store.put(PATH, [DATA])
    return store


@pytest.fixture
async def get(store: BlobStore) -> AsyncIterator[Get]:
    async with (
        serving(get_asgi_application()) as url,
        httpx.AsyncClient(base_url=url, verify=NO_TLS, timeout=10) as client,
    ):

        async def ask(address: str, method: str = "GET", **headers: str) -> httpx.Response:
            parts = urlsplit(address)
            return await client.request(method, f"{parts.path}?{parts.query}", headers=headers)

        yield ask


async def test_who_has_the_address_reads_the_blob(store: BlobStore, get: Get) -> None:
    address = store.signed_url(PATH, 60)
    assert address.startswith("http://testserver/blobs/")
    answer = await get(address)
    assert (answer.status_code, answer.content) == (200, DATA)
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "no-store" in answer.headers["cache-control"]


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        ("bytes=5000000-", 5_000_000, len(DATA)),
        ("bytes=5000000-999999999", 5_000_000, len(DATA)),
    ],
)
async def test_a_download_that_was_cut_goes_on(
    store: BlobStore,
    get: Get,
    asked: str,
    first: int,
    end: int,
) -> None:
    answer = await get(store.signed_url(PATH, 60), Range=asked)
    assert (answer.status_code, answer.content) == (206, DATA[first:end])
    assert answer.headers["content-range"] == f"bytes {first}-{end - 1}/{len(DATA)}"


async def test_a_download_goes_on_with_the_same_bytes_alone(store: BlobStore, get: Get) -> None:
    address = store.signed_url(PATH, 60)
    etag = (await get(address)).headers["etag"]
    rest = {"Range": "bytes=100-", "If-Range": etag}
    same = await get(address, **rest)
    assert (same.status_code, same.content) == (206, DATA[100:])
    assert same.headers["etag"] == etag
    store.put(PATH, [b"other" + DATA])
    whole = await get(address, **rest)
    assert (whole.status_code, whole.content) == (200, b"other" + DATA)
    assert whole.headers["etag"] != etag
    for never in ("", "*", f"W/{etag}", "Mon, 23 Nov 2026 04:00:00 GMT"):
        assert (await get(address, Range="bytes=1-", **{"If-Range": never})).status_code == 200


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (f"bytes={len(DATA)}-", 416),
        ("bytes=9-3", 416),
        ("bytes=-5", 200),
        ("bytes=0-1,4-5", 200),
        ("bytes=" + "9" * 30 + "-", 200),
        ("chunks=0-1", 200),
    ],
)
async def test_what_is_no_one_range_is_the_whole_or_refused(
    store: BlobStore,
    get: Get,
    asked: str,
    status: int,
) -> None:
    answer = await get(store.signed_url(PATH, 60), Range=asked)
    assert answer.status_code == status
    assert answer.content == (DATA if status == 200 else b"")


def changed(address: str, **values: str) -> str:
    parts = urlsplit(address)
    query = {name: each[0] for name, each in parse_qs(parts.query).items()} | values
    return f"{parts.path}?{urlencode({name: each for name, each in query.items() if each})}"


async def test_any_other_address_is_refused_without_a_look_at_the_store(
    store: BlobStore,
    get: Get,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = store.signed_url(PATH, 60)
    expires = int(parse_qs(urlsplit(address).query)["expires"][0])
    elsewhere = FolderSigner("http://testserver", ["another secret"])(PATH, 60)
    store.put("adapters/0123/other", [b"x"])
    for wrong in (
        changed(address, expires=str(expires + 1)),
        changed(address, expires=f"0{expires}"),
        changed(address, expires=""),
        changed(address, signature=""),
        changed(address, signature="0" * 64),
        changed(address, signature="ä"),
        changed(address, signature="\udcff".encode(errors="surrogateescape").decode("latin-1")),
        changed(elsewhere),
        address.replace("/4567", "/other"),
        address.replace("/0123/", "/%2e%2e/"),
        address.replace("/0123/", "/../"),
        "/blobs/adapters/0123/4567",
        "/blobs/",
        "/blobs/../../etc/passwd",
        "/blobs/%2e%2e/%2e%2e/etc/passwd?expires=9999999999&signature=" + "0" * 64,
    ):
        answer = await get(wrong)
        assert answer.status_code in {403, 404}, wrong
        assert DATA[:64] not in answer.content
    refused = await get(changed(address, signature="0" * 64))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "bad_address")
    missing = await get("/blobs/nothing/at/all?expires=9999999999&signature=" + "0" * 64)
    assert missing.content == refused.content


async def test_an_address_ends_at_its_time(
    store: BlobStore,
    get: Get,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = store.signed_url(PATH, 60)
    now = time.time()
    monkeypatch.setattr("inference.blobs.addresses.time.time", lambda: now + 59)
    assert (await get(address)).status_code == 200
    monkeypatch.setattr("inference.blobs.addresses.time.time", lambda: now + 61)
    assert (await get(address)).status_code == 403


async def test_a_new_secret_keeps_addresses_of_the_one_before(
    store: BlobStore,
    get: Get,
    settings: Settings,
) -> None:
    address, before = store.signed_url(PATH, 60), settings.SECRET_KEY
    settings.SECRET_KEY = "another secret of thirty-two characters"
    assert (await get(address)).status_code == 403
    settings.SECRET_KEY_FALLBACKS = [before]
    assert (await get(address)).status_code == 200


async def test_it_is_read_and_nothing_else(store: BlobStore, get: Get) -> None:
    address = store.signed_url(PATH, 60)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await get(address, method)).status_code in {403, 405}
    assert b"".join(store.get(PATH)) == DATA


async def test_what_was_deleted_is_not_there_any_more(
    store: BlobStore,
    get: Get,
) -> None:
    address = store.signed_url(PATH, 60)
    store.delete(PATH)
    assert (await get(address)).status_code == 404


def test_all_keys_are_tried_whatever_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an address lacks cannot be told from the work that it makes."""
    signer = FolderSigner("", ["present", "before", "and before"])
    good = parse_qs(urlsplit(signer(PATH, 60)).query)
    expires, signature = good["expires"][0], good["signature"][0]
    compared = 0
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        nonlocal compared
        compared += 1
        return compare(one, other)

    monkeypatch.setattr("inference.blobs.addresses.hmac.compare_digest", counted)
    for path, until, given in (
        (PATH, expires, signature),
        (PATH, expires, "0" * 64),
        ("nothing", expires, signature),
        (PATH, "1", signature),
        (PATH, "", ""),
    ):
        compared = 0
        signer.is_good(path, until, given)
        assert compared == 3


async def test_s3_signs_its_own(s3_store: BlobStore) -> None:
    s3_store.put(PATH, [b"payload"])
    address = s3_store.signed_url(PATH, 60)
    async with httpx.AsyncClient(verify=NO_TLS) as client:
        assert (await client.get(address)).content == b"payload"
        cut = await client.get(address, headers={"Range": "bytes=3-"})
        assert (cut.status_code, cut.content) == (206, b"load")
    query = parse_qs(urlsplit(address).query)
    assert query["X-Amz-Expires"] == ["60"]
    assert "testing" not in urlsplit(address).path
