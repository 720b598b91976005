import uuid

import pytest

from gpu_workers.protocol.request_id import (
    InvalidRequestId,
    lowest_request_id,
    made_at_ms,
    new_request_id,
)


def test_a_request_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(new_request_id())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122


def test_request_ids_sort_by_the_time_they_were_made() -> None:
    made = [new_request_id(now_ms) for now_ms in (0, 1, 255, 1_760_000_000_000, (1 << 48) - 1)]
    assert made == sorted(made)
    assert int(new_request_id(1_760_000_000_000)[:12], 16) == 1_760_000_000_000


def test_ids_of_the_same_millisecond_differ() -> None:
    assert len({new_request_id(1) for _ in range(1000)}) == 1000


def test_an_id_tells_when_it_was_made() -> None:
    assert made_at_ms(uuid.UUID(new_request_id(1_760_000_000_123))) == 1_760_000_000_123
    with pytest.raises(InvalidRequestId):
        made_at_ms(uuid.uuid4())


def test_a_bound_lies_between_the_ids_of_two_milliseconds() -> None:
    bound = lowest_request_id(1_760_000_000_000)
    assert uuid.UUID(new_request_id(1_759_999_999_999)) < bound
    assert bound < uuid.UUID(new_request_id(1_760_000_000_000))
