"""Labels: which names there may be, and what is stored of whatever a client sends."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.protocol.labels import (
    MAX_VALUE_CHARACTERS,
    chosen_labels,
    is_label_name,
    label_value,
    said_labels,
)


@pytest.mark.parametrize(
    "name", ["user", "metadata.team", "metadata.a.b-c_9", "metadata." + "k" * 64]
)
def test_a_name_is_the_user_or_a_key_of_metadata(name: str) -> None:
    assert is_label_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "team", "metadata", "metadata.", "metadata.a b", "metadata.a:b", "metadata." + "k" * 65,
     "user.id", "metadata.ä", "user\n", "metadata.a\n"],
)  # fmt: skip
def test_anything_else_is_none(name: str) -> None:
    assert not is_label_name(name)


def test_only_what_was_chosen_is_taken_and_only_where_it_says_something() -> None:
    said = said_labels("alice", {"team": "growth", "secret": "s3cret", "feature": "  "})
    names = ["user", "metadata.team", "metadata.feature", "metadata.absent"]
    assert chosen_labels(names, said) == {"user": "alice", "metadata.team": "growth"}
    assert chosen_labels([], said) == {}
    assert chosen_labels(["user"], said_labels(None, None)) == {}


def test_a_key_of_metadata_called_user_is_not_the_user() -> None:
    said = said_labels(None, {"user": "mallory"})
    assert chosen_labels(["user", "metadata.user"], said) == {"metadata.user": "mallory"}


def test_long_values_that_begin_alike_stay_two() -> None:
    first, second = label_value("x" * 512), label_value("x" * 511 + "y")
    assert first != second
    assert len(first) == len(second) == MAX_VALUE_CHARACTERS
    assert first.startswith("x" * 47 + "~")
    assert label_value("a" * 64) == "a" * 64


def test_what_cannot_be_shown_or_stored_is_replaced() -> None:
    assert label_value(" a\x00b\u202ec\n") == "a\ufffdb\ufffdc"


@given(st.text(max_size=200))
def test_a_value_is_short_and_stays_what_it_is_however_often_it_is_read(text: str) -> None:
    value = label_value(text)
    assert len(value) <= MAX_VALUE_CHARACTERS
    assert label_value(value) == value
    assert "\x00" not in value
    if text.strip():
        msgspec.json.encode(value)
