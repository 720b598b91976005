"""The dead letters in the table that operators see."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inference.models import DeadLetter
from inference.models.dead_letter import DeadLetterFacts

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FACTS: dict[str, Any] = {
    "request_id": uuid.uuid4().hex,
    "pool": "demo",
    "model": "penstock-demo",
    "api": "chat.completions",
    "attempts": 3,
    "last_worker_id": "w#1",
    "died_at": NOW,
}


def test_a_letter_that_left_redis_is_kept_no_more_and_its_retry_stays_told() -> None:
    letter = DeadLetterFacts(**FACTS)
    DeadLetter.objects.sync([letter], NOW)
    DeadLetter.objects.note_retry(letter.request_id, "completed", NOW)
    DeadLetter.objects.sync([letter], NOW)
    row = DeadLetter.objects.get()
    assert (row.is_kept, row.retry_outcome, row.attempts) == (True, "completed", 3)
    DeadLetter.objects.sync([], NOW)
    row = DeadLetter.objects.get()
    assert (row.is_kept, row.retry_outcome) == (False, "completed")


def test_a_letter_long_gone_is_forgotten() -> None:
    DeadLetter.objects.sync([DeadLetterFacts(**FACTS)], NOW)
    DeadLetter.objects.sync([], NOW + timedelta(days=8))
    assert not DeadLetter.objects.exists()
