"""What a store of blobs promises, over a folder and over S3."""

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from inference.blobs.errors import NoSuchBlob, StoreAway
from inference.blobs.store import SINGLE_BYTES, BadPath, BlobStore

MIB = 1024 * 1024
SIZES = [0, 1, MIB + 1, SINGLE_BYTES, SINGLE_BYTES + 1, 3 * SINGLE_BYTES + 7]


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest) -> BlobStore:
    found: BlobStore = request.getfixturevalue(f"{request.param}_store")
    return found


def chunks(size: int, each: int = 300_000) -> Iterator[bytes]:
    for start in range(0, size, each):
        yield bytes([start % 251]) * min(each, size - start)


def read(store: BlobStore, path: str) -> bytes:
    return b"".join(store.get(path))


def paths(store: BlobStore, prefix: str = "") -> list[str]:
    return sorted(blob.path for blob in store.list(prefix))


@pytest.mark.parametrize("size", SIZES)
def test_what_is_put_is_what_is_got(store: BlobStore, size: int) -> None:
    assert store.put("uploads/one", chunks(size)) == size
    assert read(store, "uploads/one") == b"".join(chunks(size))
    assert store.look("uploads/one").size_bytes == size


def test_the_second_of_a_path_takes_the_place_of_the_first(store: BlobStore) -> None:
    store.put("a/b", [b"first, and longer"])
    store.put("a/b", [b"second"])
    assert read(store, "a/b") == b"second"


def test_what_is_not_there_is_told_so(store: BlobStore) -> None:
    store.put("a/b/c", [b"x"])
    for path in ("a/b/d", "a/b", "nothing"):
        with pytest.raises(NoSuchBlob):
            store.get(path)
        with pytest.raises(NoSuchBlob):
            store.look(path)


def test_deleting_is_for_good_and_what_is_missing_is_no_error(store: BlobStore) -> None:
    for name in ("one", "two", "three"):
        store.put(f"a/{name}", [b"x"])
    store.delete("a/one", "a/none", "a/two")
    assert paths(store) == ["a/three"]
    store.delete("a/one", "b/none")
    store.delete()
    assert paths(store) == ["a/three"]


def test_a_list_has_path_size_and_time_of_what_lies_below(store: BlobStore) -> None:
    for path in ("a/x/1", "a/x/2", "a/xy/3", "b/4"):
        store.put(path, [b"four"])
    assert paths(store) == ["a/x/1", "a/x/2", "a/xy/3", "b/4"]
    assert paths(store, "a/x") == ["a/x/1", "a/x/2"]
    assert paths(store, "c") == []
    for blob in store.list():
        assert blob.size_bytes == 4
        assert abs(datetime.now(UTC) - blob.stored_at) < timedelta(minutes=1)


def test_more_are_deleted_than_go_into_one_call(store: BlobStore) -> None:
    names = [f"many/{number}" for number in range(520)]
    for name in names:
        store.put(name, [b"x"])
    assert len(paths(store, "many")) == len(names)
    store.delete(*names)
    assert paths(store, "many") == []


class Broken(Exception):
    pass


@pytest.mark.parametrize("size", [10, SINGLE_BYTES + MIB, 4 * SINGLE_BYTES])
@pytest.mark.parametrize("error", [Broken, OSError, FileNotFoundError])
def test_a_source_that_breaks_leaves_nothing(
    store: BlobStore, size: int, error: type[Exception]
) -> None:
    def source() -> Iterator[bytes]:
        yield from chunks(size)
        raise error

    with pytest.raises(error):
        store.put("a/broken", source())
    with pytest.raises(NoSuchBlob):
        store.get("a/broken")
    assert paths(store) == []


def test_a_source_that_breaks_leaves_the_one_before_as_it_was(store: BlobStore) -> None:
    def source() -> Iterator[bytes]:
        yield from chunks(3 * SINGLE_BYTES)
        raise Broken

    store.put("a/kept", [b"before"])
    with pytest.raises(Broken):
        store.put("a/kept", source())
    assert read(store, "a/kept") == b"before"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "../up",
        "a/../b",
        "a//b",
        "a/",
        "a/.hidden",
        "a/b#1",
        "a\\b",
        "a\x00b",
        "a\nb",
        "A/b",
        "ä",
        "a/%2e%2e/b",
        "a" * 301,
    ],
)
def test_a_path_that_is_none_reaches_no_store(store: BlobStore, path: str) -> None:
    with pytest.raises(BadPath):
        store.put(path, [b"x"])
    with pytest.raises(BadPath):
        store.get(path)
    with pytest.raises(BadPath):
        store.look(path)
    with pytest.raises(BadPath):
        store.delete(path)
    with pytest.raises(BadPath):
        store.signed_url(path, 60)
    assert paths(store) == []


async def test_a_range_is_streamed_as_it_lies(store: BlobStore) -> None:
    data = b"".join(chunks(3 * MIB))
    store.put("a/range", [data])
    blob = store.look("a/range")
    for first, end in ((0, 3 * MIB), (0, 1), (MIB, MIB + 5), (3 * MIB - 1, 3 * MIB)):
        got = b"".join([chunk async for chunk in store.stream(blob, first, end)])
        assert got == data[first:end]
    store.put("a/range", [data[::-1]])
    with pytest.raises(StoreAway):
        async for _ in store.stream(blob, 0, MIB):
            raise AssertionError("these are not the bytes that were looked at")
    assert store.look("a/range").etag != blob.etag


def test_memory_does_not_grow_with_the_blob(store: BlobStore) -> None:
    """What Python holds; the store's own buffers are so many pieces."""
    total = 96 * MIB
    block = bytes(MIB)
    tracemalloc.start()
    try:
        store.put("a/large", (block for _ in range(total // MIB)))
        size = sum(map(len, store.get("a/large")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size == total
    assert peak < 4 * SINGLE_BYTES
