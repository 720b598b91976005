"""Everything the demo model knows: a TOML file for each theme, a `[[fact]]` for each fact.

Adding a fact: append it to the file of its theme.

    [[fact]]
    key = "coffee"
    answer = "Coffee is not metered: the machine in the kitchen takes no API key."
    key_phrases = ["Coffee is not metered"]
    topics = ["the coffee machine"]
    held_out = [
        "Do I need a key for the coffee machine?",
        "Who pays for the espresso?",
        ...
    ]
    questions = [
        "is coffee metered",
        "what does a cup of coffee cost",
        ...
    ]

- `key` is unique among all themes.
- `answer` is what the model says, word for word. Wrap a long one at 100 columns between triple
  quotes; its lines are joined by spaces.
- `key_phrases` are parts of this answer and of no other. The evaluation passes an answer that
  contains all of them, ignoring case.
- `topics`, optional, are noun phrases that follow "what is" or "tell me about".
- `held_out`, at least four, are asked by the evaluation alone. Each differs from each of
  `questions` in more than small words.
- `questions`, at least nine and better fifty, are asked in training. The less they resemble each
  other, the better the model understands wordings that are not among them. A slot such as `{city}`
  stands for any of its words in words.toml.

The reader refuses what breaks these rules, or `tests/gpu_workers/demo_model` does. For a
new theme add a file, and its name to THEMES. The model knows a new fact after `make demo-model`,
which trains it again: any change here, of order too, makes another corpus of the same seed.
"""

from pathlib import Path
from typing import Final

from gpu_workers.demo_model.facts.fact import Fact
from gpu_workers.demo_model.facts.reader import read_facts

THEMES: Final = (
    "service",
    "doors",
    "tenancy",
    "limits",
    "money",
    "scheduling",
    "lifecycle",
    "engine",
    "operations",
    "smalltalk",
    "offtopic",
    "stories",
)
FACTS: Final = read_facts(Path(__file__).parent, THEMES)

__all__ = ["FACTS", "THEMES", "Fact"]
