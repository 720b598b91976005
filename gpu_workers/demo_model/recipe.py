"""What a training run depends on: its parts, their lengths and learning rates."""

import math
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stretch of training with a learning rate that rises, then falls along a cosine."""

    steps: int
    questions_per_step: int
    peak_learning_rate: float
    warmup_steps: int
    embedding_dropout: float
    asks_roughly: bool = False
    splits_words: bool = False
    forms_per_step: int = 0

    def learning_rate(self, step: int) -> float:
        """Return the rate at `step` of this part; at its end it is a fiftieth of the peak."""
        if step < self.warmup_steps:
            return self.peak_learning_rate * (step + 1) / self.warmup_steps
        share = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.peak_learning_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))


PLAIN: Final = Part(
    steps=3000,
    questions_per_step=32,
    peak_learning_rate=2e-3,
    warmup_steps=300,
    embedding_dropout=0.05,
)
ROUGH: Final = Part(
    steps=3000,
    questions_per_step=64,
    peak_learning_rate=1.5e-3,
    warmup_steps=50,
    embedding_dropout=0.15,
    asks_roughly=True,
)
SPLIT: Final = Part(
    steps=1500,
    questions_per_step=64,
    peak_learning_rate=1.5e-3,
    warmup_steps=50,
    embedding_dropout=0.15,
    asks_roughly=True,
    splits_words=True,
)
FORMS: Final = Part(
    steps=1700,
    questions_per_step=40,
    peak_learning_rate=1.0e-3,
    warmup_steps=100,
    embedding_dropout=0.05,
    asks_roughly=True,
    forms_per_step=24,
)
MORE_FORMS: Final = replace(FORMS, steps=1000)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A trunk that learns the facts, branches that each go on from its end, and last parts
    that go on from their mean and learn to fill forms in while they rehearse the facts.

    The branches see other questions, and the mean of their weights understands unseen wordings
    better than any of them (model soups, Wortsman et al., ICML 2022): of an earlier cut two
    branches answered 87.0 and 87.7 % of the held-out questions, their mean 89.4 %. This one's
    answered 91.6 %, and 90.5 % after the last parts, which fill in 98 % of held-out schemas, and
    82 % of objects and 85 % of calls that no grammar helps with. A third last part, of a thousand
    steps with more fields by other names, made none of that better.
    """

    seed: int = 20
    trunk: Part = PLAIN
    branches: tuple[Part, ...] = (ROUGH, SPLIT)
    last: tuple[Part, ...] = (FORMS, MORE_FORMS)
    conversations_per_step: int = 5
    tokenizer_conversations: int = 30_000
    weight_decay: float = 0.1
    threads: int = 2
    steps_between_checkpoints: int = 250

    def parts(self) -> tuple[tuple[int, Part], ...]:
        """Return trunk, branches and the last parts, each with the number of its first step:
        none share a step."""
        numbered: list[tuple[int, Part]] = []
        first_step = 0
        for part in (self.trunk, *self.branches, *self.last):
            numbered.append((first_step, part))
            first_step += part.steps
        return tuple(numbered)
