"""What the explorer can show, and the dimensions that it can split it by."""

from dataclasses import dataclass
from typing import Final

from control_plane.dashboard.charts.chart import Unit
from inference.usage.reports import OF_POOLS, PERIODS, Dimension

# By time and by organisation a page of one organisation is not split; pools are operators' own.
NOT_SPLIT_BY: Final = PERIODS | OF_POOLS | {Dimension.TENANT}
DIMENSIONS: Final = [each for each in Dimension if each not in NOT_SPLIT_BY]
_WORDS: Final = {"api_key": "API key", "created_by": "Key made by"}


@dataclass(frozen=True, kw_only=True)
class Measure:
    """`counters` of the rollups are added up to it."""

    word: str
    unit: Unit
    counters: tuple[str, ...]


MEASURES: Final = {
    "spend": Measure(word="Spend", unit=Unit.DOLLARS, counters=("cost_nanos",)),
    "tokens": Measure(
        word="Tokens", unit=Unit.TOKENS, counters=("prompt_tokens", "completion_tokens")
    ),
    "prompt": Measure(word="Prompt tokens", unit=Unit.TOKENS, counters=("prompt_tokens",)),
    "cached": Measure(word="Cached prompt tokens", unit=Unit.TOKENS, counters=("cached_tokens",)),
    "completion": Measure(
        word="Completion tokens", unit=Unit.TOKENS, counters=("completion_tokens",)
    ),
    "requests": Measure(word="Requests", unit=Unit.REQUESTS, counters=("requests",)),
    "failed": Measure(word="Failed requests", unit=Unit.REQUESTS, counters=("failed",)),
}


def dimension_word(dimension: Dimension) -> str:
    """Say what a dimension is, as a heading."""
    word = dimension.value.replace("_", " ")
    return _WORDS.get(dimension.value, word[:1].upper() + word[1:])
