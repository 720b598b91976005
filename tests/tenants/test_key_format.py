import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants import key_format

PEPPER = b"a pepper of the tests, long enough"


def test_a_generated_key_can_be_parsed() -> None:
    key = key_format.generate()
    parsed = key_format.parse(key)
    assert key_format.PATTERN.fullmatch(key)
    assert len(key) == len("pk-") + 16 + 1 + 32 + 6
    assert key.split("-")[1] == parsed.public_id
    assert key.endswith(parsed.last_four)


def test_keys_are_not_made_twice() -> None:
    keys = {key_format.generate() for _ in range(200)}
    assert len({key_format.parse(key).public_id for key in keys}) == 200


def test_the_format_stays_as_it_was_published() -> None:
    # A key of an earlier release must go on working: format, checksum and digest are promises.
    key = "pk-abcdefghij012345-abcdefghijklmnopqrstuvwxyz234567" + "93dec6"
    assert key_format.parse(key).public_id == "abcdefghij012345"
    assert key_format.digest(key, PEPPER).hex() == (
        "bbf63bd2872e94ebf6a33fe915860d2f0699863ce626cbc6afe5325465269936"
    )


@given(position=st.integers(0, 57), letter=st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789"))
def test_one_mistyped_character_is_noticed_without_a_look_up(position: int, letter: str) -> None:
    key = key_format.generate()
    mistyped = key[:position] + letter + key[position + 1 :]
    if mistyped == key:
        return
    with pytest.raises(key_format.MalformedApiKey):
        key_format.parse(mistyped)


@given(st.text(max_size=80))
def test_what_is_no_key_is_malformed_and_never_repeated(text: str) -> None:
    with pytest.raises(key_format.MalformedApiKey) as caught:
        key_format.parse(text)
    assert len(text) < 12 or text not in str(caught.value)


def test_digits_of_other_scripts_are_no_digits() -> None:
    key = key_format.generate()
    with pytest.raises(key_format.MalformedApiKey):
        key_format.parse(key[:-1] + "٣")


def test_only_the_whole_key_under_the_same_pepper_is_genuine() -> None:
    key = key_format.generate()
    digest = key_format.digest(key, PEPPER)
    assert key_format.is_genuine(key, digest, PEPPER)
    assert not key_format.is_genuine(key, digest, b"another pepper")
    assert not key_format.is_genuine(key[:-1], digest, PEPPER)
    assert not key_format.is_genuine(key, b"", PEPPER)
