"""What a request may cost at most, and what it has cost: tokens and nano-dollars.

Prices are integer pico-dollars a token and tiers multiply them by a permille, so amounts are exact
until they are rounded to nano-dollars, once for each request and half to even. That never turns the
order of two amounts around: nothing is settled above its reservation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.messages import FREE, Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import WHOLE, ModelPolicy, PricePolicy, TierPolicy

_PICOS_AND_PERMILLE: Final = 1_000_000
_BATCH: Final = "batch"

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


def prices_of(model: ModelPolicy, tier: TierPolicy, *, adapter: str = "", at_ms: int) -> Prices:
    """Return what a request that arrives then is admitted at. What the model says nothing of is
    free."""
    return tier_prices(
        model.prices,
        tier=tier.name,
        multiplier_permille=tier.price_multiplier_permille,
        service_class=tier.service_class,
        adapter=adapter,
        at_ms=at_ms,
    )


def tier_prices(
    prices: Iterable[PricePolicy],
    *,
    tier: str,
    multiplier_permille: int,
    service_class: str,
    adapter: str,
    at_ms: int,
) -> Prices:
    """Return the most specific price that holds: for adapter and tier, adapter, tier, all. The
    multiplier is for prices that are not the tier's own; with a batch discount it comes to whole
    permille."""
    holding = [price for price in prices if price.holds(tier, adapter, at_ms)]
    if not holding:
        return FREE
    price = max(holding, key=lambda each: (each.adapter != "", each.tier != ""))
    permille = WHOLE if price.tier else multiplier_permille
    if service_class == _BATCH:
        permille = half_even(permille * price.batch_permille, WHOLE)
    return Prices(price.prompt, price.cached, price.completion, permille)


def worst_case(prompt_tokens: int, output_tokens: int, prices: Prices) -> Charge:
    """Return what a request may cost at most: bounds or counts of all its prompts and choices."""
    highest_prompt = max(prices.prompt, prices.cached)
    picos = prompt_tokens * highest_prompt + output_tokens * prices.completion
    return Charge(tokens=prompt_tokens + output_tokens, nanos=_nanos(picos, prices))


def upper_bound(charges: Iterable[Charge]) -> Charge:
    """Return the smallest charge that covers any one of them."""
    every = list(charges)
    return Charge(
        tokens=max(each.tokens for each in every), nanos=max(each.nanos for each in every)
    )


def is_charged(outcome: Outcome) -> bool:
    """Return whether what a request has used is charged when it ends so."""
    return outcome not in _NEVER_RUN


def actual(outcome: Outcome, usage: TokenUsage, prices: Prices) -> Charge:
    """Return what a request has cost, by its terminal record."""
    if not is_charged(outcome):
        return NOTHING
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    picos = (
        (usage.prompt_tokens - cached) * prices.prompt
        + cached * prices.cached
        + usage.completion_tokens * prices.completion
    )
    return Charge(tokens=usage.prompt_tokens + usage.completion_tokens, nanos=_nanos(picos, prices))


def half_even(numerator: int, denominator: int) -> int:
    """Return the quotient to the nearest whole number, halves to the even one; both are
    positive."""
    quotient, remainder = divmod(numerator, denominator)
    twice = 2 * remainder
    return quotient + (twice > denominator or (twice == denominator and quotient % 2 == 1))


def _nanos(picos: int, prices: Prices) -> int:
    return half_even(picos * prices.permille, _PICOS_AND_PERMILLE)
