"""What a worker keeps of the frames it has sent, and what it releases."""

from gpu_workers.frames import ring as ring_module
from gpu_workers.frames.outgoing import Outgoing
from gpu_workers.frames.ring import FrameRing
from gpu_workers.protocol.messages import Delta

GATEWAY = Outgoing("gateway", after=0)


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
    found = ring.resend(request_id, 1, seq)
    return [frame.seq for frame in found[1]] if found else []


def test_a_request_keeps_its_newest_frames_and_gives_none_where_one_is_gone() -> None:
    ring = FrameRing(max_request_bytes=5000)
    for seq in range(10):
        ring.keep(GATEWAY, a_delta(seq))
    assert kept(ring, 6) == [6, 7, 8, 9]
    assert kept(ring, 5) == []
    found = ring.resend("a", 1, 9)
    assert found is not None
    assert found[0] is GATEWAY


def test_a_frame_that_is_larger_than_the_bound_is_kept_alone() -> None:
    ring = FrameRing(max_request_bytes=5000)
    ring.keep(GATEWAY, a_delta(0))
    ring.keep(GATEWAY, a_delta(1, size=9000))
    assert kept(ring, 1) == [1]


def test_all_requests_together_have_a_bound() -> None:
    ring = FrameRing(max_bytes=20_000)
    for seq in range(100):
        for request_id in "abc":
            ring.keep(GATEWAY, a_delta(seq, request_id=request_id))
    assert ring.size <= 20_000 + 3 * 1300
    assert kept(ring, 99, "c") == [99]


def test_what_has_ended_is_released() -> None:
    ring = FrameRing()
    ring.keep(GATEWAY, a_delta(0))
    ring.keep(GATEWAY, a_delta(0, request_id="b"))
    ring.forget("a", 1)
    assert kept(ring, 0) == []
    ring.forget("b", 1)
    assert ring.size == 0


def unconfirmed(ring: FrameRing) -> list[int]:
    return [frame.seq for frame in ring.unconfirmed("a", 1)]


def a_ring(outgoing: Outgoing, batches: int, *, size: int = 1000) -> FrameRing:
    """With one frame a batch, and one in the batch that gathers."""
    ring = FrameRing()
    for seq in range(batches):
        ring.keep(outgoing, a_delta(seq, size=size))
        outgoing.take("w#1")
    ring.keep(outgoing, a_delta(batches, size=size))
    return ring


def test_what_a_gateway_has_confirmed_is_not_left_to_it_again() -> None:
    outgoing = Outgoing("gateway", after=7)
    ring = a_ring(outgoing, 5)
    assert unconfirmed(ring) == [0, 1, 2, 3, 4, 5]
    outgoing.confirmed = 7 + 3
    assert unconfirmed(ring) == [3, 4, 5]
    outgoing.confirmed = 7 + 5
    assert unconfirmed(ring) == [5]
    assert ring.unconfirmed("unknown", 1) == []


def test_what_is_sent_again_counts_from_its_last_batch() -> None:
    outgoing = Outgoing("gateway", after=0)
    ring = a_ring(outgoing, 5)
    outgoing.confirmed = 5
    ring.resend("a", 1, 2)
    assert unconfirmed(ring) == [2, 3, 4, 5]


def test_of_what_redis_has_taken_a_bounded_part_is_left_and_of_what_it_has_not_all() -> None:
    outgoing = Outgoing("gateway", after=0)
    size = ring_module.MAX_UNCONFIRMED_BYTES // 8
    ring = a_ring(outgoing, 20, size=size)
    outgoing.written = 20
    assert unconfirmed(ring) == list(range(14, 21))
    outgoing.written = 10
    assert unconfirmed(ring) == list(range(10, 21))


def test_a_gateway_of_which_nothing_is_kept_is_idle() -> None:
    outgoing = Outgoing("gateway", after=0)
    ring = a_ring(outgoing, 1)
    outgoing.take("w#1")
    assert not outgoing.is_idle
    assert ring.forget("a", 1) is outgoing
    assert outgoing.is_idle
