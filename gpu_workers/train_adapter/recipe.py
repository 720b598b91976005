"""What an adapter follows from, beside its data and its base."""

import math
from dataclasses import dataclass
from typing import Final

ALL_LINEAR: Final = "all-linear"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training run. The same recipe, data, base and machine give the same bytes.

    `targets` are names of linear layers, such as `q_proj`; ALL_LINEAR alone is all but the output
    layer. `learning_rate` is the highest; None takes `usual_learning_rate` of the base.
    """

    rank: int = 16
    alpha: int = 32
    targets: tuple[str, ...] = (ALL_LINEAR,)
    dropout: float = 0.0
    epochs: int = 3
    conversations_per_step: int = 16
    learning_rate: float | None = None
    warmup_share: float = 0.05
    seed: int = 0

    def share_of_peak(self, step: int, steps: int) -> float:
        """Return the learning rate at `step` of `steps` as a share of the highest: it rises to 1,
        then falls to nearly 0 along a line."""
        warmup_steps = max(1, round(steps * self.warmup_share))
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return (steps - step) / max(1, steps - warmup_steps)


def usual_learning_rate(hidden_size: int) -> float:
    """Return a rate that suits LoRA on a base of this width: 5e-4 at 2,000, more for smaller ones.

    The formula and its exponent, that of Llama, are those of Thinking Machines' Tinker cookbook
    (`get_lr`), fitted to sweeps over bases of 1B parameters and more ("LoRA Without Regret",
    Schulman et al., 2025).
    """
    return 5e-5 * 10 * math.pow(2000 / hidden_size, 0.781)
