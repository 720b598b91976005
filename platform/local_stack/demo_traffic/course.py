"""How an hour goes: waves, a flood, a slow worker. A moment is a share of the run, 0 to 1, so that
five minutes have all that an hour has."""

import math
from dataclasses import dataclass
from typing import Final

FLOOD: Final = 12.0  # times what the program asks otherwise


@dataclass(frozen=True)
class Scene:
    begins: float
    ends: float

    def covers(self, moment: float) -> bool:
        return self.begins <= moment < self.ends


SLOW_WORKER: Final = Scene(0.3, 0.5)
FLOODED: Final = Scene(0.65, 0.75)


def rate(moment: float, *, phase: float, floods: bool) -> float:
    """Return how many times its usual rate a program asks: between 0.4 and 1.6 in two waves, which
    begin where `phase` says, and many times more as it floods."""
    wave = 1.0 + 0.6 * math.sin(2.0 * math.pi * (2.0 * moment + phase))
    return wave * (FLOOD if floods and FLOODED.covers(moment) else 1.0)
