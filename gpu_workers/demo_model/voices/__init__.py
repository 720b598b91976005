"""Two tenants' support in their own voices: what their LoRA adapters on the demo model learn.

questions.toml has what customers ask, the same for every voice; acme.toml and globex.toml have what
each answers. Both adapters are named `support`; ADAPTERS_FOLDER has them as PEFT writes them, and
`make demo-adapters` makes them anew.

A topic:

    [[topic]]
    key = "parking"
    nouns = ["parking"]
    held_out = ["Where do I leave my car?", ...]
    questions = ["can I park at the shop", ...]

- `nouns` (optional), `held_out` and `questions` are `topics`, `held_out` and `questions` of a fact
  of the demo model, see facts/__init__.py; slots are those of words.toml.
- `as_base` instead: keys of facts of the demo model that are asked about in the same words. Their
  first held-out questions are the topic's.

A voice answers each topic with its opening, what it says and its closing; `key_phrases` are parts
of what it says that no other answer of either voice has.
"""

from pathlib import Path
from typing import Final

from gpu_workers.demo_model.voices.voice import Voice, read_voices

ADAPTERS_FOLDER: Final = Path(__file__).parents[1] / "adapters"
VOICES: Final = read_voices(Path(__file__).parent, ("acme", "globex"))

__all__ = ["ADAPTERS_FOLDER", "VOICES", "Voice"]
