"""Adapters come from the store as the control plane described them, or not at all."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from redis.asyncio import Redis

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from gpu_workers.adapters.cache import AdapterCache
from gpu_workers.adapters.fetch import Fetches
from gpu_workers.adapters.sources import AdapterSources
from gpu_workers.adapters.supply import FETCHES_AT_ONCE, AdapterSupply, Opened
from gpu_workers.adapters.unavailable import AdapterUnavailable
from gpu_workers.metrics import WorkerMetrics
from tests.support.polling import eventually
from tests.support.workers.adapters.full_disk import files_of_at_most
from tests.support.workers.adapters.store import (
    IN_TIME_SECONDS,
    AdapterStore,
    Answer,
    MadeAdapter,
    cuts,
    gives,
    goes_on,
    make_adapter,
    refuses,
    stalls,
    streams,
)

ENOUGH = 2**30
ACME = make_adapter(1)


LIES: dict[str, Answer] = {
    "longer": gives(ACME.sealed + b"x"),
    "shorter": gives(ACME.sealed[:-1]),
    "says more": gives(ACME.sealed, says=len(ACME.sealed) + 1),
    "says less": gives(ACME.sealed, says=len(ACME.sealed) - 1),
    "says huge": gives(b"", says=2**60),
    "streams more": streams(ACME.sealed + b"x"),
    "streams less": streams(ACME.sealed[:-1]),
    "noise": streams(os.urandom(len(ACME.sealed))),
    "another's": streams(make_adapter(2).sealed),
    "unsealed": gives(ACME.plain.ljust(len(ACME.sealed), b" ")),
    "nothing": streams(b""),
    "401": refuses(401),
    "404": refuses(404),
    "500": refuses(500),
    "206": refuses(206),
    "redirect": refuses(302, "location: http://127.0.0.1:1/elsewhere\r\n"),
}


class Supplied:
    """A supply over a cache, and what it says of its disk."""

    def __init__(
        self,
        redis: Redis,
        folder: Path,
        *,
        max_bytes: int = ENOUGH,
        stall_seconds: float = IN_TIME_SECONDS,
        least_seconds: float = IN_TIME_SECONDS,
    ) -> None:
        self.changed: list[str] = []
        self.cache = AdapterCache.open(folder, max_bytes)
        self.supply = AdapterSupply(
            cache=self.cache,
            sources=AdapterSources(redis, pool="sim"),
            fetches=Fetches(
                stall_seconds=stall_seconds, least_seconds=least_seconds, pauses_seconds=(0, 0, 0)
            ),
            metrics=WorkerMetrics("sim"),
            on_disk=self.changed.append,
        )

    async def open(self, adapter: MadeAdapter) -> Opened:
        async with asyncio.timeout(IN_TIME_SECONDS):
            return await self.supply.open(adapter.name)

    async def fails(self, adapter: MadeAdapter) -> str:
        with pytest.raises(AdapterUnavailable) as failed:
            await self.open(adapter)
        return str(failed.value)


@pytest.fixture
async def supplied(dispatch_redis: Redis, cache_folder: Path) -> AsyncIterator[Supplied]:
    supplied = Supplied(dispatch_redis, cache_folder)
    yield supplied
    await supplied.supply.close()


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


async def test_a_source_that_comes_a_moment_after_its_first_request_is_waited_for(
    dispatch_redis: Redis, store: AdapterStore, supplied: Supplied
) -> None:
    """Gateways may hear of a new version just before its workers do."""

    async def is_missed() -> bool:
        return "cmdstat_hget" in await dispatch_redis.info("commandstats")

    await dispatch_redis.config_resetstat()
    opening = asyncio.create_task(supplied.open(ACME))
    await eventually(is_missed)
    await store.offer(ACME)
    assert (await opening).is_fetched


async def test_an_adapter_is_fetched_once_and_then_read_from_disk(
    store: AdapterStore, supplied: Supplied
) -> None:
    await store.offer(ACME)
    fetched, cached = await supplied.open(ACME), await supplied.open(ACME)
    assert (fetched.is_fetched, cached.is_fetched) == (True, False)
    assert store.asked == [ACME.name]
    assert (cached.folder / WEIGHTS_FILE).read_bytes() == ACME.plain
    assert supplied.supply.has(ACME.name)
    assert supplied.changed == [ACME.name]
    await supplied.supply.drop(cached.folder)
    assert not cached.folder.exists()


@pytest.mark.parametrize("answer", LIES.values(), ids=LIES)
async def test_a_store_that_lies_gives_nothing_and_leaves_nothing(
    store: AdapterStore, supplied: Supplied, cache_folder: Path, answer: Answer
) -> None:
    await store.offer(ACME)
    store.answers_with(ACME, answer, answer)
    await supplied.fails(ACME)
    assert store.asked == [ACME.name] * 2, "its source is read again once"
    assert left_in(cache_folder) == set()
    assert not supplied.supply.has(ACME.name)
    assert (await supplied.open(ACME)).is_fetched, "and it heals by itself"


async def test_a_file_pieced_together_of_two_is_found_out_and_fetched_whole(
    store: AdapterStore, supplied: Supplied, cache_folder: Path
) -> None:
    """A store that says of other bytes that they are the same ones: the digest tells."""
    await store.offer(ACME)
    other = make_adapter(2).sealed
    store.answers_with(ACME, cuts(other, 1000), goes_on(ACME.sealed, 1000))
    opened = await supplied.open(ACME)
    assert (opened.folder / WEIGHTS_FILE).read_bytes() == ACME.plain
    assert len(store.asked) == 3
    assert left_in(cache_folder) == {ACME.name, WEIGHTS_FILE, CONFIG_FILE}


async def test_what_is_cut_for_good_leaves_nothing(
    store: AdapterStore, supplied: Supplied, cache_folder: Path
) -> None:
    await store.offer(ACME)
    store.answers_with(ACME, *[cuts(ACME.sealed, 1000)] * 8)
    await supplied.fails(ACME)
    assert left_in(cache_folder) == set()
    assert len(store.asked) == 8
    assert (await supplied.open(ACME)).is_fetched


@pytest.mark.parametrize(
    "lie",
    [
        {"sha256": bytes(32)},
        {"key": bytes(32)},
        {"key": b""},
        {"size_bytes": len(ACME.sealed) + 1},
        {"size_bytes": len(ACME.sealed) - 1},
        {"size_bytes": 0},
        {"size_bytes": -1},
        {"size_bytes": 2**62},
        {"url": "file:///etc/hosts"},
        {"url": "http://"},
        {"url": "/relative"},
        {"url": "http://127.0.0.1:1/nobody-listens"},
        {"expires_at_ms": 1},
        {"adapter": make_adapter(2).name},
    ],
    ids=str,
)
async def test_a_source_that_is_not_of_what_is_stored_gives_nothing(
    store: AdapterStore, supplied: Supplied, cache_folder: Path, lie: dict[str, Any]
) -> None:
    await store.offer(ACME, **lie)
    await supplied.fails(ACME)
    assert left_in(cache_folder) == set()
    await store.offer(ACME)
    assert (await supplied.open(ACME)).is_fetched


async def test_an_expired_url_is_not_asked(store: AdapterStore, supplied: Supplied) -> None:
    await store.offer(ACME, expires_at_ms=1)
    await supplied.fails(ACME)
    assert store.asked == []


async def test_what_is_on_disk_needs_no_url_that_is_still_good(
    store: AdapterStore, supplied: Supplied
) -> None:
    await store.offer(ACME)
    await supplied.open(ACME)
    await store.offer(ACME, expires_at_ms=1)
    assert not (await supplied.open(ACME)).is_fetched


async def test_a_url_that_is_refused_is_replaced_by_the_one_written_since(
    store: AdapterStore, supplied: Supplied
) -> None:
    old = await store.offer(ACME)

    async def refuse_and_sign_again(writer: asyncio.StreamWriter) -> None:
        await store.offer(ACME)
        await refuses(403)(writer)

    await store.offer(ACME, url=old.url + "&old")
    store.answers_with(ACME, refuse_and_sign_again)
    assert (await supplied.open(ACME)).is_fetched
    assert len(store.asked) == 2


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../../etc/passwd", "/etc/passwd", "a/b", "acme/support"),
        *("A" * 64, "a" * 65, "a" * 63 + "/", "a" * 63 + "\n", "a" * 64 + "\n", "a" * 63 + "\0"),
    ],
)
async def test_a_name_that_is_no_digest_never_becomes_a_path(
    store: AdapterStore, supplied: Supplied, cache_folder: Path, name: str
) -> None:
    source = await store.offer(ACME)
    await store.write(name, source)
    with pytest.raises(AdapterUnavailable):
        await supplied.supply.open(name)
    assert store.asked == []
    assert left_in(cache_folder) == set()


@pytest.mark.parametrize(("stall_seconds", "least_seconds"), [(0.05, 10), (10, 0.05)])
async def test_a_store_that_stalls_is_given_up(
    dispatch_redis: Redis,
    store: AdapterStore,
    cache_folder: Path,
    stall_seconds: float,
    least_seconds: float,
) -> None:
    supplied = Supplied(
        dispatch_redis, cache_folder, stall_seconds=stall_seconds, least_seconds=least_seconds
    )
    await store.offer(ACME)
    never = asyncio.Event()
    store.answers_with(ACME, stalls(ACME.sealed, never), stalls(ACME.sealed, never))
    await supplied.fails(ACME)
    never.set()
    assert left_in(cache_folder) == set()
    await supplied.supply.close()


async def test_stores_that_stall_hold_up_nothing_that_is_on_disk(
    store: AdapterStore, supplied: Supplied
) -> None:
    await store.offer(ACME)
    await supplied.open(ACME)
    released = asyncio.Event()
    stalled = [make_adapter(number) for number in range(10, 10 + 2 * FETCHES_AT_ONCE)]
    for each in stalled:
        await store.offer(each)
        store.answers_with(each, stalls(each.sealed, released))
    opens = [asyncio.create_task(supplied.open(each)) for each in stalled]
    await eventually(lambda: len(store.asked) == 1 + FETCHES_AT_ONCE)
    assert not (await supplied.open(ACME)).is_fetched
    assert len(store.asked) == 1 + FETCHES_AT_ONCE, "a few at once"
    released.set()
    assert all(opened.is_fetched for opened in await asyncio.gather(*opens))


async def test_a_corrupt_cache_is_fetched_again(
    store: AdapterStore, supplied: Supplied, cache_folder: Path
) -> None:
    await store.offer(ACME)
    await supplied.open(ACME)
    (cache_folder / "sealed" / ACME.name).write_bytes(b"x" * len(ACME.sealed))
    opened = await supplied.open(ACME)
    assert opened.is_fetched
    assert (opened.folder / WEIGHTS_FILE).read_bytes() == ACME.plain
    assert not (await supplied.open(ACME)).is_fetched


async def test_a_full_disk_is_a_failure_that_passes(
    store: AdapterStore, supplied: Supplied, cache_folder: Path
) -> None:
    await store.offer(ACME)
    with files_of_at_most(4096):
        assert os.strerror(errno.EFBIG) in await supplied.fails(ACME)
    assert left_in(cache_folder) == set()
    assert (await supplied.open(ACME)).is_fetched


async def test_the_cache_stays_within_its_bound_and_what_was_evicted_is_told(
    dispatch_redis: Redis, store: AdapterStore, cache_folder: Path
) -> None:
    size = len(ACME.sealed)
    supplied = Supplied(dispatch_redis, cache_folder, max_bytes=4 * size)
    adapters = [make_adapter(number) for number in range(8)]
    for adapter in adapters:
        await store.offer(adapter)
        opened = await supplied.open(adapter)
        await supplied.supply.drop(opened.folder)
        assert supplied.cache.size_bytes() <= 4 * size
    on_disk = {each.name for each in adapters if supplied.supply.has(each.name)}
    assert on_disk == supplied.cache.names()
    assert adapters[-1].name in on_disk
    assert set(supplied.changed) == {each.name for each in adapters}
    await supplied.supply.close()


async def test_one_that_is_larger_than_the_cache_is_not_fetched(
    dispatch_redis: Redis, store: AdapterStore, cache_folder: Path
) -> None:
    supplied = Supplied(dispatch_redis, cache_folder, max_bytes=len(ACME.sealed) - 1)
    await store.offer(ACME)
    await supplied.fails(ACME)
    assert store.asked == []
    await supplied.supply.close()


async def test_a_worker_sees_what_others_fetched_if_it_is_its_pools(
    dispatch_redis: Redis, store: AdapterStore, supplied: Supplied, cache_folder: Path
) -> None:
    foreign = make_adapter(5)
    for adapter in (ACME, foreign):
        await store.offer(adapter)
    another = Supplied(dispatch_redis, cache_folder)
    for adapter in (ACME, foreign):
        await another.open(adapter)
    await store.withdraw(foreign.name)
    await supplied.supply.look()
    assert supplied.supply.has(ACME.name)
    assert not supplied.supply.has(foreign.name)
    another.cache.make_room(ENOUGH)
    await supplied.supply.look()
    assert not supplied.supply.has(ACME.name)
    assert supplied.changed == [ACME.name, ACME.name]
    await another.supply.close()


async def test_neither_key_nor_url_is_ever_told(store: AdapterStore, supplied: Supplied) -> None:
    source = await store.offer(ACME)
    store.answers_with(ACME, refuses(403), refuses(302, f"location: {source.url}\r\n"))
    with structlog.testing.capture_logs() as logged:
        told = await supplied.fails(ACME)
        await store.offer(ACME, url="ftp://127.0.0.1/?signature=wax")
        told += await supplied.fails(ACME)
    for secret in ("wax", source.key.hex(), repr(source.key)):
        assert secret not in repr(logged) + told
