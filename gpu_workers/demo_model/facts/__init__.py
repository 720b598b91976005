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

- `key` is the fact's own among all themes.
- `answer` is what the model says, word for word. A long one stands between triple quotes, wrapped
  at 100 columns: its lines are joined by spaces.
- `key_phrases` are what the evaluation looks for, all of them, ignoring case: parts of this answer
  that are in no other.
- `questions`, nine at least and better fifty, are what training asks; the more unlike each other
  they are, the better wordings are understood that nobody thought of. A slot such as `{city}`
  stands for each of its words in words.toml.
- `topics` may be left out: noun phrases that follow "what is" or "tell me about".
- `held_out`, four at least, are asked by the evaluation alone. Each differs from every one of
  `questions` in more than small words.

What breaks a rule is refused, here or by `tests/gpu_workers/test_demo_model.py`. A new theme is a
new file and its name in THEMES. The model knows the fact after `make demo-model`, which trains it
again: any change here, the order of facts included, makes another corpus of the same seed.
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
