"""The eight hues of charts: kept by things, and parted by colour-blind eyes."""

from itertools import combinations
from typing import Final

import pytest
from control_plane.dashboard.charts.hues import HUES, hues

from tests.control_plane.dashboard.test_contrast import colours

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]

# How eyes without one kind of cones see linear sRGB: Machado, Oliveira and Fernandes, "A
# Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1.
SIGHTS: Final[dict[str, Matrix]] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# In Oklab, where a difference of 0.02 can just be seen.
LEAST_DISTANCE: Final = 0.1


def linear(colour: str) -> Triple:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return _light(red), _light(green), _light(blue)


def _light(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def times(matrix: Matrix, vector: Triple) -> Triple:
    first, second, third = (
        sum(factor * each for factor, each in zip(row, vector, strict=True)) for row in matrix
    )
    return first, second, third


def oklab(colour: Triple) -> Triple:
    """Ottosson, "A perceptual color space for image processing", 2020."""
    cones = times(
        (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ),
        colour,
    )
    long, middle, short = (max(each, 0.0) ** (1 / 3) for each in cones)
    return times(
        (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ),
        (long, middle, short),
    )


def seen(colour: str, sight: Matrix) -> Triple:
    red, green, blue = (min(max(each, 0.0), 1.0) for each in times(sight, linear(colour)))
    return oklab((red, green, blue))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_every_two_hues_differ_to_any_eye(sight: str, scheme: int) -> None:
    known = colours()
    looks = {hue: seen(known[f"hue-{hue}"][scheme], SIGHTS[sight]) for hue in range(1, HUES + 1)}
    distances = {
        (one, other): sum(
            (a - b) ** 2 for a, b in zip(looks[one], looks[other], strict=True)
        ) ** 0.5
        for one, other in combinations(looks, 2)
    }  # fmt: skip
    assert {pair: far for pair, far in distances.items() if far < LEAST_DISTANCE} == {}


def test_the_same_thing_has_the_same_hue_whatever_its_company() -> None:
    alone = hues(["p95"])["p95"]
    assert hues(["p99", "p50", "p95"])["p95"] == alone
    assert hues(["web"]) == hues(["web", "web"])
    assert hues(["all"]) == {"all": 1}, "the logo's, as of a chart of one series"


def test_eight_things_have_eight_hues() -> None:
    chosen = hues(f"project {number}" for number in range(HUES))
    assert sorted(chosen.values()) == list(range(1, HUES + 1))


def test_more_than_eight_share_and_none_is_without() -> None:
    chosen = hues(f"project {number}" for number in range(30))
    assert len(chosen) == 30
    assert set(chosen.values()) == set(range(1, HUES + 1))
