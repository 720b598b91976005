"""However a vocabulary cuts a text, there are no fewer tokens than the bound says."""

from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.requests.token_lower_bound import TokenLowerBound

VOCABULARY = st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=30)


@given(VOCABULARY, st.lists(st.integers(min_value=0), max_size=60))
def test_the_bound_is_never_above_the_tokens_that_there_are(
    vocabulary: list[bytes], drawn: list[int]
) -> None:
    tokens = [vocabulary[index % len(vocabulary)] for index in drawn]
    assert TokenLowerBound(vocabulary)(b"".join(tokens)) <= len(tokens)


@given(VOCABULARY, st.binary(max_size=200))
def test_bytes_that_no_token_has_count_one_each(vocabulary: list[bytes], text: bytes) -> None:
    known = set(b"".join(vocabulary))
    unknown = bytes(byte for byte in text if byte not in known)
    assert abs(TokenLowerBound(vocabulary)(unknown) - len(unknown)) <= 1


def test_a_run_of_spaces_in_the_vocabulary_does_not_loosen_the_bound_of_words() -> None:
    bound = TokenLowerBound(
        [b" " * 128, b" water", b"turbine", *(bytes([byte]) for byte in range(256))]
    )
    assert bound(b"turbine " * 1000) >= 1000
    assert bound(b" " * 1280) == 10
