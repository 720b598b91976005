"""What is sealed opens to the same bytes, whatever the chunks; anything else does not open."""

import itertools
import os
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu_workers.protocol.sealed import (
    FRAME_BYTES,
    HEADER_BYTES,
    KEY_BYTES,
    TAG_BYTES,
    SealBroken,
    new_salt,
    open_sealed,
    open_stream,
    seal,
    sealed_size,
    stream_key,
)

KEY = bytes(range(KEY_BYTES))
SEALED_FRAME = FRAME_BYTES + TAG_BYTES
# Around what a frame holds, where an end is easily one too early or too late.
SIZES = st.sampled_from(
    [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES, 3 * FRAME_BYTES + 7]
)


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def sealed(data: bytes, key: bytes = KEY) -> bytes:
    return b"".join(seal([data], key))


def opened(data: bytes, key: bytes = KEY) -> bytes:
    return b"".join(open_sealed([data], key))


def frames_of(data: bytes) -> tuple[bytes, list[bytes]]:
    return data[:HEADER_BYTES], list(cut(data[HEADER_BYTES:], SEALED_FRAME))


@settings(max_examples=25, deadline=None)
@given(size=SIZES, written=st.integers(1000, 3 * FRAME_BYTES), read=st.integers(1000, FRAME_BYTES))
def test_what_is_sealed_opens_to_the_same_bytes_in_any_chunks(
    size: int, written: int, read: int
) -> None:
    data = os.urandom(size)
    stored = b"".join(seal(cut(data, written), KEY))
    assert len(stored) == sealed_size(size)
    assert b"".join(open_sealed(cut(stored, read), KEY)) == data


def test_a_stream_opens_from_single_bytes_and_empty_chunks() -> None:
    stored = sealed(b"hello")
    chunks = itertools.chain.from_iterable((b"", bytes([byte])) for byte in stored)
    assert b"".join(open_sealed(chunks, KEY)) == b"hello"


def test_two_seals_of_the_same_bytes_have_nothing_in_common() -> None:
    _, first = frames_of(sealed(b"the same"))
    _, second = frames_of(sealed(b"the same"))
    assert first != second


def test_a_streams_own_key_opens_it_and_no_other_of_the_same_key() -> None:
    salt, other = new_salt(), sealed(b"other")
    stored = b"".join(seal([b"mine"], KEY, salt=salt))
    own = stream_key(KEY, salt)
    assert b"".join(open_stream([stored], own)) == b"mine"
    with pytest.raises(SealBroken):
        b"".join(open_stream([other], own))
    with pytest.raises(SealBroken):
        opened(stored, own)
    with pytest.raises(ValueError, match="32 bytes"):
        open_stream([stored], own[:31])


@settings(max_examples=60, deadline=None)
@given(size=SIZES, place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_changed_bit_is_found(size: int, place: float, bit: int) -> None:
    stored = bytearray(sealed(bytes(size)))
    stored[int(place * len(stored))] ^= 1 << bit
    with pytest.raises(SealBroken):
        opened(bytes(stored))


@pytest.mark.parametrize("place", [0, 7, 8, 39, 40, -1, -16, -17])
def test_a_changed_bit_of_header_or_tag_is_found(place: int) -> None:
    stored = bytearray(sealed(b"payload"))
    stored[place] ^= 1
    with pytest.raises(SealBroken):
        opened(bytes(stored))


@settings(max_examples=60, deadline=None)
@given(size=SIZES, place=st.floats(0, 1, exclude_max=True))
def test_a_stream_that_was_cut_anywhere_is_found(size: int, place: float) -> None:
    stored = sealed(bytes(size))
    with pytest.raises(SealBroken):
        opened(stored[: int(place * len(stored))])


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES, 2 * FRAME_BYTES, 2 * FRAME_BYTES + 1])
def test_a_stream_cut_between_frames_is_found(size: int) -> None:
    header, frames = frames_of(sealed(bytes(size)))
    for kept in range(len(frames)):
        with pytest.raises(SealBroken):
            opened(header + b"".join(frames[:kept]))


@settings(max_examples=40, deadline=None)
@given(order=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_frames_open_in_their_own_order_alone(order: list[int]) -> None:
    """Dropped, repeated, swapped: every sequence but the sealed one."""
    assume(order != [0, 1, 2, 3])
    header, frames = frames_of(sealed(os.urandom(3 * FRAME_BYTES + 5)))
    with pytest.raises(SealBroken):
        opened(header + b"".join(frames[number] for number in order))


@pytest.mark.parametrize("more", [b"\x00", bytes(TAG_BYTES), bytes(SEALED_FRAME)])
@pytest.mark.parametrize("size", [0, 5, FRAME_BYTES])
def test_a_stream_that_goes_on_is_found(size: int, more: bytes) -> None:
    with pytest.raises(SealBroken):
        opened(sealed(bytes(size)) + more)


def test_a_frame_of_another_stream_under_the_same_key_is_found() -> None:
    header, frames = frames_of(sealed(bytes(2 * FRAME_BYTES)))
    _, others = frames_of(sealed(bytes(2 * FRAME_BYTES)))
    with pytest.raises(SealBroken):
        opened(header + frames[0] + others[1])


def test_another_key_opens_nothing() -> None:
    stored = sealed(b"payload")
    with pytest.raises(SealBroken):
        opened(stored, os.urandom(KEY_BYTES))


@given(st.binary(max_size=200))
def test_bytes_that_nobody_sealed_do_not_open(data: bytes) -> None:
    with pytest.raises(SealBroken):
        opened(data)


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_no_key(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        sealed(b"", bytes(length))
    with pytest.raises(ValueError, match="32 bytes"):
        opened(sealed(b""), bytes(length))


@pytest.mark.parametrize("chunk", [64 * 1024, 16 * FRAME_BYTES])
def test_memory_is_bounded_by_frames_not_by_streams(chunk: int) -> None:
    """64 MiB through both ways at once, in small chunks and in huge ones."""
    total = 64 * FRAME_BYTES
    block = bytes(chunk)
    source = (block for _ in range(total // chunk))
    tracemalloc.start()
    try:
        size = sum(len(part) for part in open_sealed(seal(source, KEY), KEY))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size == total
    assert peak < 12 * FRAME_BYTES
