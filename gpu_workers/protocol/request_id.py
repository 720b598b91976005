"""Request ids: UUIDv7, so that they sort by time and a usage table can be partitioned on them."""

import os
import uuid

from gpu_workers.protocol.clock import CLOCK


class InvalidRequestId(ValueError):
    """An id that is no UUIDv7."""


def new_request_id(now_ms: int | None = None) -> str:
    """Make a UUIDv7 (RFC 9562, section 5.7) as 32 hex digits. Ours alone: never a caller's."""
    timestamp_ms = CLOCK.now_ms() if now_ms is None else now_ms
    random = int.from_bytes(os.urandom(10), "big")
    value = (timestamp_ms & (1 << 48) - 1) << 80
    value |= 0x7 << 76
    value |= (random >> 68) << 64
    value |= 0b10 << 62
    value |= random & (1 << 62) - 1
    return uuid.UUID(int=value).hex


def made_at_ms(request_id: uuid.UUID) -> int:
    """Return an id's creation in Unix ms. Raises `InvalidRequestId` if it is no UUIDv7."""
    if request_id.version != 7:
        raise InvalidRequestId(f"{request_id} is no UUID of version 7")
    return request_id.int >> 80


def lowest_request_id(at_ms: int) -> uuid.UUID:
    """Return the UUID below every id made at that ms or later, and above all earlier ones."""
    return uuid.UUID(int=at_ms << 80)
