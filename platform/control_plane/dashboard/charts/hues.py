"""Which of the eight hues a thing has: the same on every page. `tokens.css` has the colours."""

import zlib
from collections.abc import Iterable
from typing import Final

HUES: Final = 8
# What is left after the largest few: grey, as it is no one thing.
OTHER_HUE: Final = 0
# What stands beside one another on many pages.
_FIXED: Final = {
    "all": 1,
    "p50": 1,
    "p95": 2,
    "p99": 3,
    "prompt tokens": 1,
    "completion tokens": 2,
    "cached tokens": 4,
    "premium": 1,
    "standard": 3,
    "batch": 2,
    "free": 4,
}


def hues(names: Iterable[str]) -> dict[str, int]:
    """Return a hue of 1 to 8 for each name. Of two that would have the same, the one that is later
    by name takes the next free one; more than eight share."""
    taken: dict[int, str] = {}
    chosen: dict[str, int] = {}
    for name in sorted(set(names), key=lambda each: (each not in _FIXED, each)):
        first = _FIXED.get(name) or zlib.crc32(name.encode()) % HUES + 1
        around = [(first - 1 + step) % HUES + 1 for step in range(HUES)]
        hue = next((each for each in around if each not in taken), first)
        taken.setdefault(hue, name)
        chosen[name] = hue
    return chosen
