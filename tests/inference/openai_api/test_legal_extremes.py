"""What the fuzzer draws is legal, or refused by its doors in terms that its author understands."""

import json

import pytest

from inference.errors import InvalidRequest
from inference.openai_api.chat_request import parse_chat
from inference.openai_api.completion_request import parse_completion
from tests.benchmarks.extremes.legal import CHAT, draw
from tests.support.gateways.cast import MODEL

DRAWN = 400


@pytest.mark.parametrize("seed", [1, 2])
def test_doors_take_what_is_drawn_or_say_what_is_wrong(seed: int) -> None:
    taken = 0
    for number in range(DRAWN // 2):
        request = draw(seed, number, MODEL)
        parse = parse_chat if request.path == CHAT else parse_completion
        try:
            parsed = parse(json.dumps(request.body).encode())
        except InvalidRequest as error:
            assert error.param, (number, request.extremes, error.message)
            assert len(error.message) < 1_000
        else:
            taken += 1
            assert parsed.choices >= 1
            assert json.loads(parsed.body)["model"] == MODEL
    assert taken > DRAWN / 2 * 0.6


def test_a_number_draws_the_same_again() -> None:
    assert draw(7, 11, MODEL) == draw(7, 11, MODEL)
    assert draw(7, 11, MODEL) != draw(7, 12, MODEL)
