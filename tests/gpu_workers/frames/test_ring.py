"""What a worker keeps of the frames it has sent, and what it releases."""

from gpu_workers.frames.ring import FrameRing
from gpu_workers.protocol.messages import Delta


def a_delta(seq: int, *, request_id: str = "a", size: int = 1000) -> Delta:
    return Delta(
        request_id=request_id,
        attempt=1,
        seq=seq,
        chunks=[b"x" * size],
        completion_tokens=seq + 1,
        token_ids=[seq],
    )


def kept(ring: FrameRing, seq: int, request_id: str = "a") -> list[int]:
    return [frame.seq for frame in ring.since(request_id, 1, seq)[1]]


def test_a_request_keeps_its_newest_frames_and_gives_none_where_one_is_gone() -> None:
    ring = FrameRing(max_request_bytes=5000)
    for seq in range(10):
        ring.keep("gateway", a_delta(seq))
    assert kept(ring, 6) == [6, 7, 8, 9]
    assert kept(ring, 5) == []
    assert ring.since("a", 1, 9)[0] == "gateway"


def test_a_frame_that_is_larger_than_the_bound_is_kept_alone() -> None:
    ring = FrameRing(max_request_bytes=5000)
    ring.keep("gateway", a_delta(0))
    ring.keep("gateway", a_delta(1, size=9000))
    assert kept(ring, 1) == [1]


def test_all_requests_together_have_a_bound() -> None:
    ring = FrameRing(max_bytes=20_000)
    for seq in range(100):
        for request_id in "abc":
            ring.keep("gateway", a_delta(seq, request_id=request_id))
    assert ring.size <= 20_000 + 3 * 1300
    assert kept(ring, 99, "c") == [99]


def test_what_has_ended_is_released() -> None:
    ring = FrameRing()
    ring.keep("gateway", a_delta(0))
    ring.keep("gateway", a_delta(0, request_id="b"))
    ring.forget("a", 1)
    assert kept(ring, 0) == []
    ring.forget("b", 1)
    assert ring.size == 0
