"""The bound on the service gap of two backlogged tenants, as docs/fairness.md derives it."""

from dataclasses import dataclass

from inference.lua_constants import HEADROOM_QUANTUM, INPUT_WEIGHT, OUTPUT_WEIGHT


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest of what requests may be, in tokens; `slots` that one tenant can hold at once,
    `estimate` the largest estimate of an output."""

    prompt: int
    output: int
    estimate: int
    slots: int
    quantum: int = HEADROOM_QUANTUM


def gap_bound(limits: Limits, weight: float, other_weight: float) -> float:
    """The most by which the weighted service of two tenants of one class can differ over any time
    in which both have requests waiting."""
    return sum(
        (limits.quantum + _unserved(limits) + _overcharged(limits)) / each
        for each in (weight, other_weight)
    )


def _unserved(limits: Limits) -> float:
    """What one claim and the requests under way can still take of the engine."""
    return INPUT_WEIGHT * limits.prompt * limits.slots + OUTPUT_WEIGHT * (
        limits.slots * limits.output
    )


def _overcharged(limits: Limits) -> float:
    """What was charged by estimate and will be given back."""
    return limits.slots * (INPUT_WEIGHT * limits.prompt + OUTPUT_WEIGHT * limits.estimate)
