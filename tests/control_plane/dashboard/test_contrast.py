"""Colours of tokens.css keep WCAG's contrast in both schemes: 4.5 for text, 3 for what is drawn."""

import re
from typing import Final

import pytest

from tests.support.places import ROOT

TOKENS: Final = ROOT / "platform/control_plane/static/dashboard/tokens.css"
GROUNDS: Final = ("n-1", "n-2", "n-3")
TEXT: Final = [
    *((text, ground) for text in ("n-12", "n-11", "accent") for ground in (*GROUNDS, "n-4")),
    *((kind, ground) for kind in ("good", "warn", "bad", "info") for ground in ("n-1", "n-2")),
    *((kind, f"{kind}-fill") for kind in ("good", "warn", "bad", "info", "accent")),
    *(("n-12", f"{kind}-fill") for kind in ("good", "warn", "bad", "info", "accent")),
    ("on-accent", "accent-solid"),
    ("on-accent", "accent-solid-hover"),
    ("on-bad", "bad-solid"),
    ("n-2", "n-12"),
    ("code-ink", "code-ground"),
]
DRAWN: Final = [
    *(("n-8", ground) for ground in ("n-1", "n-2")),
    *(("n-9", ground) for ground in GROUNDS),
    *((f"{kind}-line", "n-2") for kind in ("good", "warn", "bad", "info")),
    *((f"{kind}-line", "n-1") for kind in ("good", "warn", "bad", "info")),
    ("accent-solid", "n-2"),
    ("accent", "n-1"),
    *((f"hue-{hue}", ground) for hue in range(1, 9) for ground in ("n-1", "n-2")),
]


def colours() -> dict[str, tuple[str, str]]:
    """Each token's colour in the light and in the dark scheme."""
    found = re.findall(
        r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", TOKENS.read_text(encoding="utf-8")
    )
    return {name: (light, dark) for name, light, dark in found}


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (DRAWN, 3.0)], ids=["text", "drawn"])
def test_colours_contrast_enough(pairs: list[tuple[str, str]], least: float, scheme: int) -> None:
    known = colours()
    ratios = {
        pair: round(contrast(known[pair[0]][scheme], known[pair[1]][scheme]), 2) for pair in pairs
    }
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < least} == {}
