"""What requests cost: which price holds, and how amounts are rounded."""

import json
import unicodedata
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.protocol.messages import FREE, Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import ModelPolicy, PricePolicy
from inference.charges import NOTHING, Charge, actual, half_even, prices_of, worst_case
from inference.openai_api.chat_request import parse_chat
from inference.openai_api.completion_request import parse_completion
from tests.support.gateways.service import a_tier

NOW: Final = 1_800_000_000_000
COUNTS = st.integers(0, 2_000_000)
AMOUNTS = st.integers(0, 10**12)
PRICES = st.builds(Prices, AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 5000))


def a_model(*prices: PricePolicy) -> ModelPolicy:
    return ModelPolicy(
        name="m",
        pool="p",
        context_tokens=1,
        created_at=0,
        owned_by="us",
        prices=list(prices),
    )


def prompt_price(model: ModelPolicy, *, adapter: str = "", at_ms: int = NOW) -> int:
    return prices_of(model, a_tier(name="gold"), adapter=adapter, at_ms=at_ms).prompt


def test_the_most_specific_price_holds() -> None:
    prices = [
        PricePolicy(prompt=1),
        PricePolicy(prompt=2, tier="gold"),
        PricePolicy(prompt=3, adapter="law"),
        PricePolicy(prompt=4, adapter="law", tier="gold"),
        PricePolicy(prompt=9, adapter="law", tier="iron"),
    ]
    for known, plain, with_adapter in ((1, 1, 1), (2, 2, 2), (3, 2, 3), (5, 2, 4)):
        model = a_model(*prices[:known])
        assert prompt_price(model) == plain
        assert prompt_price(model, adapter="law") == with_adapter


def test_a_price_holds_from_its_moment_until_the_next_ones() -> None:
    model = a_model(
        PricePolicy(prompt=1, from_ms=NOW - 10, until_ms=NOW),
        PricePolicy(prompt=2, from_ms=NOW),
    )
    assert prompt_price(model, at_ms=NOW - 11) == 0
    assert prompt_price(model, at_ms=NOW - 1) == 1
    assert prompt_price(model, at_ms=NOW) == 2
    assert prices_of(a_model(), a_tier(), at_ms=NOW) == FREE


def test_a_tier_multiplies_what_is_not_its_own_price() -> None:
    tier = a_tier(name="gold", price_multiplier_permille=1500)
    assert prices_of(a_model(PricePolicy(prompt=2)), tier, at_ms=NOW).permille == 1500
    own = a_model(PricePolicy(prompt=2, tier="gold"))
    assert prices_of(own, tier, at_ms=NOW).permille == 1000


@pytest.mark.parametrize(("service_class", "permille"), [("batch", 750), ("interactive", 1500)])
def test_batch_has_its_discount(service_class: str, permille: int) -> None:
    tier = a_tier(service_class=service_class, price_multiplier_permille=1500)
    model = a_model(PricePolicy(prompt=2, batch_permille=500))
    assert prices_of(model, tier, at_ms=NOW).permille == permille


def test_halves_go_to_the_even_nano_dollar() -> None:
    for numerator, nearest in ((1, 0), (2, 1), (3, 2), (5, 2), (6, 3), (7, 4), (0, 0)):
        assert half_even(numerator, 2) == nearest
    assert half_even(2_500_001, 1_000_000) == 3


def test_amounts_are_rounded_once_for_a_request() -> None:
    prices = Prices(prompt=300, cached=100, completion=500, permille=1000)
    usage = TokenUsage(prompt_tokens=9, cached_tokens=4, completion_tokens=2)
    assert actual(Outcome.COMPLETED, usage, prices) == Charge(tokens=11, nanos=3)  # 2.9
    assert worst_case(9, 2, prices) == Charge(tokens=11, nanos=4)  # 3.7


@given(PRICES, COUNTS, COUNTS, st.data())
def test_nothing_costs_more_than_its_worst_case(
    prices: Prices, prompt_bound: int, output_bound: int, data: st.DataObject
) -> None:
    prompt = data.draw(st.integers(0, prompt_bound))
    usage = TokenUsage(
        prompt_tokens=prompt,
        cached_tokens=data.draw(st.integers(0, prompt)),
        completion_tokens=data.draw(st.integers(0, output_bound)),
    )
    reserved = worst_case(prompt_bound, output_bound, prices)
    trued_down = worst_case(prompt, output_bound, prices)
    for outcome in Outcome:
        charge = actual(outcome, usage, prices)
        assert 0 <= charge.nanos <= trued_down.nanos <= reserved.nanos
        assert charge.tokens <= trued_down.tokens <= reserved.tokens
        if outcome in (Outcome.REFUSED, Outcome.EXPIRED):
            assert charge == NOTHING


# What one token has at least a byte of: names and ids, in whatever letters, and the composed form
# of a text, which some tokenizers make first and which may be longer.
@pytest.mark.parametrize("text", ["x" * 1000, "\N{GRINNING FACE}" * 250, "\U0001d160" * 250])
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "{text}"},
        {"role": "user", "content": "Hello", "name": "{text}"},
        {"role": "user", "content": [{"type": "text", "text": "{text}"}]},
        {"role": "tool", "content": "Hello", "tool_call_id": "{text}"},
        {"role": "assistant", "content": "{text}"},
    ],
)
def test_all_that_a_template_may_render_is_reserved(message: dict[str, Any], text: str) -> None:
    body = json.dumps({"model": "m", "messages": [message]}).replace("{text}", text)
    composed = unicodedata.normalize("NFC", text)
    bound = parse_chat(body.encode()).prompt_bound
    assert bound >= max(len(text.encode()), len(composed.encode()))


def test_the_composed_form_of_a_prompt_is_reserved() -> None:
    body = json.dumps({"model": "m", "prompt": "\U0001d160" * 100})
    assert parse_completion(body.encode()).prompt_bound == 1200
