"""A stream is in order and without holes, and merges for a slow reader, up to a cap."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from gpu_workers.protocol.messages import (
    Delta,
    Outcome,
    Terminal,
    TextDelta,
    TokenUsage,
)
from inference.errors import SlowReader, StreamBroken
from inference.streaming import reorder_buffer
from inference.streaming.token_stream import MAX_UNREAD_BYTES, Progress, TokenStream
from tests.support.polling import eventually


def a_delta(
    seq: int,
    *chunks: bytes,
    attempt: int = 1,
    token_ids: Sequence[int] = (),
    count: int | None = None,
) -> Delta:
    return Delta(
        request_id="a",
        attempt=attempt,
        seq=seq,
        chunks=list(chunks),
        completion_tokens=seq + 1 if count is None else count,
        token_ids=list(token_ids),
    )


FORM = (b'{"text":', b"}")


def a_text(
    seq: int,
    text: str,
    *,
    attempt: int = 1,
    form: tuple[bytes, bytes] | None = None,
    token_ids: Sequence[int] = (),
    count: int | None = None,
) -> TextDelta:
    return TextDelta(
        request_id="a",
        attempt=attempt,
        seq=seq,
        text=text,
        completion_tokens=seq + 1 if count is None else count,
        token_ids=list(token_ids),
        form=form,
    )


def a_terminal(seq: int, *, attempt: int = 1) -> Terminal:
    return Terminal(
        request_id="a",
        attempt=attempt,
        seq=seq,
        outcome=Outcome.COMPLETED,
        usage=TokenUsage(completion_tokens=seq),
    )


def feed(stream: TokenStream, frame: Delta | TextDelta | Terminal, worker_id: str) -> None:
    """Give the stream a frame of a worker that holds the request, as it knows by then."""
    stream.note_holder(frame.attempt, worker_id)
    stream.feed(frame, worker_id)


@pytest.fixture
def ends() -> list[Terminal]:
    return []


@pytest.fixture
def gaps() -> list[int]:
    """The number of the frame that was missing, at each time of asking."""
    return []


@pytest.fixture
def stream(ends: list[Terminal], gaps: list[int]) -> TokenStream:
    return TokenStream("a", ends.append, lambda: None, lambda stream: gaps.append(stream.next_seq))


async def test_what_gathers_between_two_reads_comes_at_once(
    stream: TokenStream, ends: list[Terminal]
) -> None:
    feed(stream, a_delta(0, b"one"), "w")
    feed(stream, a_delta(1, b"two", b"three"), "w")
    feed(stream, a_terminal(2), "w")
    progress = await stream.next()
    assert progress.chunks == [b"one", b"two", b"three"]
    assert progress.end == ends[0]


async def test_the_events_of_texts_are_built_in_the_form_that_came_first(
    stream: TokenStream,
) -> None:
    feed(stream, a_delta(0, b"role"), "w")
    feed(stream, a_text(2, "two", count=2), "w")
    feed(stream, a_text(1, 'ö"\n', form=FORM, count=1), "w")
    chunks = [b"role", '{"text":"ö\\"\\n"}'.encode(), b'{"text":"two"}']
    assert (await stream.next()).chunks == chunks
    assert stream.completion_tokens == 2


async def test_a_reader_is_woken(stream: TokenStream) -> None:
    reading = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    feed(stream, a_delta(0, b"one"), "w")
    assert (await reading).chunks == [b"one"]


async def read_past_the_reader(
    stream: TokenStream,
) -> tuple[list[list[bytes]], asyncio.Task[Progress]]:
    """Return what will be written while a reader waits, and that reader."""
    written: list[list[bytes]] = []

    def write(chunks: list[bytes]) -> bool:
        written.append(chunks)
        return True

    reading = asyncio.create_task(stream.next(write))
    await asyncio.sleep(0)
    return written, reading


async def test_output_is_written_in_one_piece_without_waking_its_reader(
    stream: TokenStream, ends: list[Terminal]
) -> None:
    written, reading = await read_past_the_reader(stream)
    feed(stream, a_delta(0, b"one"), "w")
    feed(stream, a_delta(1, b"two"), "w")
    assert await eventually(lambda: written) == [[b"one", b"two"]]
    feed(stream, a_delta(2, b"three"), "w")
    assert await eventually(lambda: written[1:]) == [[b"three"]]
    assert not reading.done()
    feed(stream, a_delta(3, b"four"), "w")
    feed(stream, a_terminal(4), "w")
    progress = await reading
    assert (progress.chunks, progress.end) == ([b"four"], ends[0])
    assert len(written) == 2


async def test_what_cannot_be_written_at_once_waits_for_its_reader(stream: TokenStream) -> None:
    reading = asyncio.create_task(stream.next(lambda chunks: False))
    await asyncio.sleep(0)
    feed(stream, a_delta(0, b"one"), "w")
    feed(stream, a_delta(1, b"two"), "w")
    assert (await reading).chunks == [b"one", b"two"]


async def test_what_comes_while_the_reader_is_busy_is_not_written_past_it(
    stream: TokenStream,
) -> None:
    written, reading = await read_past_the_reader(stream)
    stream.note_silence()
    feed(stream, a_delta(0, b"one"), "w")
    assert (await reading).chunks == [b"one"]
    feed(stream, a_delta(1, b"two"), "w")
    await asyncio.sleep(0)
    assert (await stream.next()).chunks == [b"two"]
    assert written == []


async def test_silence_wakes_a_reader_with_nothing(stream: TokenStream) -> None:
    stream.note_silence()
    progress = await stream.next()
    assert (progress.chunks, progress.end) == ([], None)


async def test_unread_output_has_a_cap_and_the_end_is_still_taken(
    stream: TokenStream, ends: list[Terminal]
) -> None:
    chunk = b"x" * (MAX_UNREAD_BYTES // 4)
    for seq in range(6):
        feed(stream, a_delta(seq, chunk), "w")
    assert stream.is_broken
    assert len((await stream.next()).chunks) == 5
    with pytest.raises(SlowReader):
        await stream.next()
    feed(stream, a_terminal(6), "w")
    assert len(ends) == 1


async def test_what_comes_after_a_gap_waits_until_the_gap_is_filled(
    stream: TokenStream, gaps: list[int], ends: list[Terminal]
) -> None:
    feed(stream, a_delta(0, b"one"), "w")
    for frame in (a_delta(3, b"four"), a_terminal(4)):
        feed(stream, frame, "w")
    assert gaps == [1], "asked once"
    assert (await stream.next()).chunks == [b"one"]
    assert not ends
    for frame in (a_delta(1, b"two"), a_delta(2, b"three"), a_delta(3, b"four"), a_terminal(4)):
        feed(stream, frame, "w")
    progress = await stream.next()
    assert progress.chunks == [b"two", b"three", b"four"]
    assert [progress.end] == ends


async def test_a_second_gap_is_asked_for_too(stream: TokenStream, gaps: list[int]) -> None:
    for seq in (1, 0, 3, 2):
        feed(stream, a_delta(seq, str(seq).encode()), "w")
    assert gaps == [0, 2]
    assert (await stream.next()).chunks == [b"0", b"1", b"2", b"3"]


async def test_a_gap_that_nobody_fills_breaks_the_stream_after_what_came_before_it(
    stream: TokenStream, ends: list[Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reorder_buffer, "FILL_TIMEOUT_SECONDS", 0)
    feed(stream, a_delta(0, b"one"), "w")
    feed(stream, a_delta(2, b"three"), "w")
    feed(stream, a_terminal(3), "w")
    assert (await stream.next()).chunks == [b"one"]
    with pytest.raises(StreamBroken):
        await stream.next()
    assert len(ends) == 1


async def test_a_gap_that_nobody_fills_is_made_again_where_that_is_possible(
    ends: list[Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reorder_buffer, "FILL_TIMEOUT_SECONDS", 0)
    unfilled = asyncio.Event()
    stream = TokenStream(
        "a", ends.append, lambda: None, lambda _: None,
        on_unfilled=unfilled.set, keeps_token_ids=True,
    )  # fmt: skip
    feed(stream, structs.replace(a_delta(0, b"one"), token_ids=[7]), "w")
    feed(stream, a_delta(2, b"three"), "w")
    await asyncio.wait_for(unfilled.wait(), 5)
    assert not stream.is_broken
    assert (stream.token_ids, stream.completion_tokens) == ([7], 1), "as the next attempt is told"


async def test_a_new_attempt_forgets_the_gap_of_the_old_one(stream: TokenStream) -> None:
    feed(stream, a_delta(1, b"old"), "w")
    feed(stream, a_delta(0, b"one", attempt=2), "w")
    feed(stream, a_delta(1, b"two", attempt=2), "w")
    assert (await stream.next()).chunks == [b"one", b"two"]


async def test_a_new_attempt_before_any_output_is_unseen(stream: TokenStream) -> None:
    feed(stream, a_delta(0, b"one", attempt=2), "w")
    feed(stream, a_delta(0, b"old", attempt=1), "w")
    assert (await stream.next()).chunks == [b"one"]
    assert stream.attempt == 2


async def test_a_new_attempt_after_output_breaks_the_stream(stream: TokenStream) -> None:
    feed(stream, a_delta(0, b"one"), "w")
    await stream.next()
    feed(stream, a_delta(0, b"one", attempt=2), "w")
    with pytest.raises(StreamBroken):
        await stream.next()


@pytest.fixture
def resumable(ends: list[Terminal]) -> TokenStream:
    """A stream that has taken the role and three tokens."""
    stream = TokenStream("a", ends.append, lambda: None, lambda stream: None, keeps_token_ids=True)
    feed(stream, a_delta(0, b"role", count=0), "w")
    for seq, chunk in enumerate((b"one", b"two", b"three"), start=1):
        feed(stream, a_delta(seq, chunk, token_ids=[seq], count=seq), "w")
    return stream


async def test_an_attempt_that_goes_on_is_heard_from_its_first_new_token(
    resumable: TokenStream, ends: list[Terminal]
) -> None:
    assert resumable.can_resume
    feed(resumable, a_delta(0, b"role", attempt=2, count=0), "v")
    feed(resumable, a_delta(1, b"onetwothree", attempt=2, token_ids=[1, 2, 3], count=3), "v")
    feed(resumable, a_delta(2, b"four", attempt=2, token_ids=[4], count=4), "v")
    feed(resumable, a_delta(3, b"usage", attempt=2, count=4), "v")
    feed(resumable, a_terminal(4, attempt=2), "v")
    assert (await resumable.next()).chunks == [b"role", b"one", b"two", b"three", b"four", b"usage"]
    assert resumable.token_ids == [1, 2, 3, 4]
    assert len(ends) == 1


async def test_an_attempt_that_goes_on_has_a_form_of_its_own(resumable: TokenStream) -> None:
    await resumable.next()
    feed(resumable, a_delta(0, b"role", attempt=2, count=0), "v")
    feed(resumable, a_delta(1, b"onetwothree", attempt=2, token_ids=[1, 2, 3], count=3), "v")
    feed(resumable, a_text(2, "four", attempt=2, form=FORM, token_ids=[4], count=4), "v")
    assert (await resumable.next()).chunks == [b'{"text":"four"}']
    assert resumable.token_ids == [1, 2, 3, 4]
    feed(resumable, a_delta(0, b"onetwothreefour", attempt=3, token_ids=[1, 2, 3, 4], count=4), "u")
    feed(resumable, a_text(1, "", attempt=3, form=(b"[", b"]"), count=4), "u")
    feed(resumable, a_text(2, "five", attempt=3, token_ids=[5], count=5), "u")
    assert (await resumable.next()).chunks == [b'[""]', b'["five"]']


async def test_a_third_attempt_goes_on_from_the_output_of_two(resumable: TokenStream) -> None:
    feed(resumable, a_delta(0, b"onetwothree", attempt=2, token_ids=[1, 2, 3], count=3), "v")
    feed(resumable, a_delta(1, b"four", attempt=2, token_ids=[4], count=4), "v")
    feed(resumable, a_delta(0, b"onetothree", attempt=3, token_ids=[1, 2, 3, 4], count=4), "u")
    feed(resumable, a_delta(1, b"five", attempt=3, token_ids=[5], count=5), "u")
    assert (await resumable.next()).chunks[-2:] == [b"four", b"five"]
    assert not resumable.is_broken


async def test_what_shares_the_count_of_the_last_token_is_still_given(
    resumable: TokenStream,
) -> None:
    feed(resumable, a_delta(0, b"end", attempt=2, token_ids=[1, 2, 3], count=3), "v")
    feed(resumable, a_delta(1, b"usage", attempt=2, count=3), "v")
    assert (await resumable.next()).chunks[-2:] == [b"three", b"usage"]


async def test_the_role_is_given_once_where_no_token_came(ends: list[Terminal]) -> None:
    stream = TokenStream("a", ends.append, lambda: None, lambda stream: None)
    feed(stream, a_delta(0, b"role", count=0), "w")
    feed(stream, a_delta(0, b"role", attempt=2, count=0), "v")
    feed(stream, a_delta(1, b"one", attempt=2, count=1), "v")
    assert (await stream.next()).chunks == [b"role", b"one"]


@pytest.mark.parametrize(
    ("token_ids", "count"), [([1, 2, 9], 3), ([1, 2], 2), ([1, 2, 3, 4], 4), ([1], 1)]
)
async def test_an_attempt_that_goes_on_from_other_output_breaks_the_stream(
    resumable: TokenStream, token_ids: list[int], count: int
) -> None:
    await resumable.next()
    feed(resumable, a_delta(0, b"other", attempt=2, token_ids=token_ids, count=count), "v")
    with pytest.raises(StreamBroken):
        await resumable.next()


async def test_what_comes_while_another_worker_is_told_waits_for_the_answer(
    resumable: TokenStream,
) -> None:
    resumable.hold()
    feed(resumable, a_delta(4, b"late", token_ids=[4], count=4), "w")
    feed(resumable, a_delta(0, b"again", attempt=2, token_ids=[1, 2, 3], count=3), "v")
    assert resumable.token_ids == [1, 2, 3]
    resumable.release(2)
    feed(resumable, a_delta(1, b"four", attempt=2, token_ids=[4], count=4), "v")
    assert (await resumable.next()).chunks[-2:] == [b"three", b"four"]


async def test_what_was_held_back_is_given_where_nobody_else_goes_on(
    resumable: TokenStream, ends: list[Terminal]
) -> None:
    resumable.hold()
    feed(resumable, a_delta(4, b"four", token_ids=[4], count=4), "w")
    feed(resumable, a_terminal(5), "w")
    assert not ends
    resumable.release()
    assert (await resumable.next()).chunks[-1] == b"four"
    assert len(ends) == 1


async def test_nothing_comes_after_the_end(stream: TokenStream, ends: list[Terminal]) -> None:
    feed(stream, a_terminal(0), "w")
    feed(stream, a_delta(1, b"late"), "w")
    feed(stream, a_terminal(2), "w")
    assert (await stream.next()).chunks == []
    assert len(ends) == 1
