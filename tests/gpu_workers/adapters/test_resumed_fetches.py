"""A fetch that is cut goes on where it was, if the store still has the same bytes."""

import asyncio
from collections.abc import AsyncIterator
from io import BytesIO

import pytest

from gpu_workers.adapters.fetch import Fetches, FetchFailed
from tests.support.workers.adapters.store import (
    ETAG,
    IN_TIME_SECONDS,
    AdapterStore,
    Answer,
    cuts,
    gives,
    goes_on,
    make_adapter,
    refuses,
)

ACME, OTHER = make_adapter(1), make_adapter(2)
BODY, SIZE = ACME.sealed, len(ACME.sealed)
assert len(OTHER.sealed) == SIZE


@pytest.fixture
async def fetches() -> AsyncIterator[Fetches]:
    fetches = Fetches(pauses_seconds=(0, 0, 0))
    yield fetches
    await fetches.close()


async def fetched(fetches: Fetches, store: AdapterStore, *answers: Answer) -> bytes:
    """Fetch from a store that answers like this, and then with what it has."""
    source = await store.offer(ACME)
    store.answers_with(ACME, *answers)
    file = BytesIO()
    async with asyncio.timeout(IN_TIME_SECONDS):
        await fetches.fetch(source, file)
    return file.getvalue()


async def test_what_was_cut_goes_on_where_it_was(store: AdapterStore, fetches: Fetches) -> None:
    got = await fetched(
        fetches, store, cuts(BODY, 1000), goes_on(BODY, 1000, until=5000), goes_on(BODY, 5000)
    )
    assert got == BODY
    assert store.ranges == [("bytes=1000-", ETAG), ("bytes=5000-", ETAG)]


async def test_a_store_that_was_away_for_a_moment_is_asked_again(
    store: AdapterStore, fetches: Fetches
) -> None:
    got = await fetched(fetches, store, cuts(BODY, 1000), refuses(503), goes_on(BODY, 1000))
    assert got == BODY


async def test_a_store_without_ranges_gives_the_whole_again(
    store: AdapterStore, fetches: Fetches
) -> None:
    assert await fetched(fetches, store, cuts(BODY, 1000)) == BODY
    assert len(store.asked) == 2


async def test_what_changed_meanwhile_is_fetched_whole(
    store: AdapterStore, fetches: Fetches
) -> None:
    """`If-Range`: the store answers with all of what it has now."""
    assert await fetched(fetches, store, cuts(OTHER.sealed, 9000), gives(BODY)) == BODY


@pytest.mark.parametrize(
    "answer",
    [
        goes_on(BODY, 1000, etag='"another"'),
        goes_on(BODY, 1000, etag=f"W/{ETAG}"),
        goes_on(BODY, 999),
        goes_on(BODY, 1000, says=f"bytes 1000-{SIZE}/{SIZE + 1}"),
        goes_on(BODY, 1000, says=f"bytes 1000-{SIZE - 1}/*"),
        goes_on(BODY + b"x", 1000, says=f"bytes 1000-{SIZE - 1}/{SIZE}"),
        refuses(206),
        refuses(416),
        refuses(403),
        refuses(302, "location: http://127.0.0.1:1/elsewhere\r\n"),
    ],
)
async def test_a_store_that_goes_on_with_something_else_is_not_believed(
    store: AdapterStore, fetches: Fetches, answer: Answer
) -> None:
    with pytest.raises(FetchFailed):
        await fetched(fetches, store, cuts(BODY, 1000), answer)
    assert len(store.asked) == 2


@pytest.mark.parametrize("etag", ["", f"W/{ETAG}", '"', '"a" "b"', '"ä"', '"' + "x" * 300 + '"'])
async def test_without_an_etag_that_says_the_same_bytes_nothing_is_pieced_together(
    store: AdapterStore, fetches: Fetches, etag: str
) -> None:
    with pytest.raises(FetchFailed):
        await fetched(fetches, store, cuts(BODY, 1000, etag=etag), goes_on(BODY, 1000))
    assert store.ranges == []


async def test_what_is_cut_again_and_again_is_given_up(
    store: AdapterStore, fetches: Fetches
) -> None:
    again = [goes_on(BODY, 1000 + number, until=1001 + number) for number in range(9)]
    with pytest.raises(FetchFailed):
        await fetched(fetches, store, cuts(BODY, 1000), *again)
    assert len(store.asked) == 4


async def test_a_store_that_gave_nothing_is_not_asked_to_go_on(
    store: AdapterStore, fetches: Fetches
) -> None:
    with pytest.raises(FetchFailed):
        await fetched(fetches, store, cuts(BODY, 0))
    assert len(store.asked) == 1
