"""What `enqueue` answers: where the request is now, or why it was not taken."""

from dataclasses import dataclass
from typing import Any

from gpu_workers.protocol.codec import WireFormatError


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    """A worker had a slot free and has been given the request. `is_owed`, here and of others: what
    its tier promises is owed to it (waits.lua)."""

    worker_id: str
    is_owed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued:
    """The request waits. `position` counts who is served before it at its flow's share, itself
    included; `wait_ms` is None where nobody can tell; `is_relaxed`: later than was promised."""

    position: int
    wait_ms: int | None = None
    is_relaxed: bool = False
    is_owed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueFull:
    """The pool's queue takes no more of this tenant."""

    length: int
    wait_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Saturated:
    """The request was not queued: the promised time to its first token is less than the wait."""

    position: int
    wait_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFull:
    """The pool holds as many bytes of payloads as it may, or this tenant has its share of them
    while they are getting scarce."""

    payload_bytes: int
    wait_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareFull:
    """One tenant holds as many bytes of payloads in the pool as one may at most."""

    payload_bytes: int
    max_payload_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageFull:
    """So much usage of the pool waits to be collected that there is no room for more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AlreadyKnown:
    """The same request was enqueued before: an answer that got lost, asked for again."""

    state: str
    is_owed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadsFull:
    """No worker has the adapter in memory, and for its tenant none loads more in this minute, which
    is over in `wait_ms`: loads have held engines up for `used_ms` of `max_ms`."""

    wait_ms: int
    used_ms: int
    max_ms: int


NotTaken = QueueFull | Saturated | MemoryFull | ShareFull | UsageFull | LoadsFull
Enqueued = Assigned | Queued | NotTaken | AlreadyKnown


def read_enqueued(answer: Any) -> Enqueued:
    """Decode an answer of `enqueue`. Raises `WireFormatError` if it is none."""
    match answer:
        case [b"assigned", worker_id, *owed]:
            return Assigned(worker_id=worker_id.decode(), is_owed=owed == [1])
        case [b"queued", position, wait_ms, is_relaxed, *owed]:
            return Queued(
                position=position,
                wait_ms=known_wait(wait_ms),
                is_relaxed=bool(is_relaxed),
                is_owed=owed == [1],
            )
        case [b"full", length, wait_ms]:
            return QueueFull(length=length, wait_ms=known_wait(wait_ms))
        case [b"saturated", position, wait_ms]:
            return Saturated(position=position, wait_ms=wait_ms)
        case [b"memory_full", held, wait_ms]:
            # Of a request that need not wait for a slot nobody knows when memory is free.
            return MemoryFull(payload_bytes=held, wait_ms=known_wait(wait_ms) or None)
        case [b"share_full", held, most]:
            return ShareFull(payload_bytes=held, max_payload_bytes=most)
        case [b"usage_full"]:
            return UsageFull()
        case [b"loads_full", wait_ms, used_ms, max_ms]:
            return LoadsFull(wait_ms=wait_ms, used_ms=used_ms, max_ms=max_ms)
        case [b"known", state, *owed]:
            return AlreadyKnown(state=state.decode(), is_owed=owed == [1])
    raise WireFormatError(f"expected an answer of enqueue, got: {answer!r}")


def known_wait(wait_ms: int) -> int | None:
    """Return a wait as the functions answer it; None where nobody can tell."""
    return None if wait_ms < 0 else wait_ms
