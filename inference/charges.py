"""What a request may cost at most, and what it has cost: tokens and nano-dollars.

Prices are integer pico-dollars a token and tiers multiply them by a permille, so amounts are exact
until they are rounded to nano-dollars: up where they are reserved, down where they are settled.
Nothing is ever settled above its reservation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import ModelPolicy, TierPolicy

_PICOS_AND_PERMILLE: Final = 1_000_000

# Ends before the engine: nothing was run, nothing is charged.
_NEVER_RUN: Final = (Outcome.REFUSED, Outcome.EXPIRED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The most tokens that a request may take, over all its prompts and choices."""

    prompt_tokens: int
    output_tokens: int
    is_one_prompt: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """An amount that counts against limits."""

    tokens: int
    nanos: int


NOTHING: Final = Charge(tokens=0, nanos=0)


def prices_of(model: ModelPolicy, tier: TierPolicy) -> Prices:
    price = model.price
    return Prices(price.prompt, price.cached, price.completion, tier.price_multiplier_permille)


def worst_case(prompt_tokens: int, output_tokens: int, prices: Prices) -> Charge:
    """What a request may cost at most: bounds or counts of all its prompts and choices."""
    dearest_prompt = max(prices.prompt, prices.cached)
    picos = prompt_tokens * dearest_prompt + output_tokens * prices.completion
    return Charge(
        tokens=prompt_tokens + output_tokens,
        nanos=-(-picos * prices.permille // _PICOS_AND_PERMILLE),
    )


def dearest(charges: Iterable[Charge]) -> Charge:
    """What covers any one of them."""
    every = list(charges)
    return Charge(
        tokens=max(each.tokens for each in every), nanos=max(each.nanos for each in every)
    )


def actual(outcome: Outcome, usage: TokenUsage, prices: Prices) -> Charge:
    """What a request has cost, by its terminal record."""
    if outcome in _NEVER_RUN:
        return NOTHING
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    picos = (
        (usage.prompt_tokens - cached) * prices.prompt
        + cached * prices.cached
        + usage.completion_tokens * prices.completion
    )
    return Charge(
        tokens=usage.prompt_tokens + usage.completion_tokens,
        nanos=picos * prices.permille // _PICOS_AND_PERMILLE,
    )
