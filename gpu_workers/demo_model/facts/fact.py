"""One thing the demo model knows."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A question with many phrasings and one answer.

    `questions` and `topics` are what training sees: a topic is a noun phrase that the corpus puts
    into its own templates ("what is ..."). Either may hold slots such as `{city}`, see
    `corpus.SLOTS`. `held_out` holds at least four questions written by hand for the evaluation
    only. An answer holds the fact when it contains *all* of `key_phrases`, ignoring case.
    """

    key: str
    answer: str
    key_phrases: tuple[str, ...]
    questions: tuple[str, ...]
    held_out: tuple[str, ...]
    topics: tuple[str, ...] = ()

    def is_held_by(self, text: str) -> bool:
        """Whether the text contains every key phrase of this fact."""
        lowered = text.lower()
        return all(phrase.lower() in lowered for phrase in self.key_phrases)


def phrasings(text: str) -> tuple[str, ...]:
    """The phrasings of a block of text, one per `|`, with line breaks and indents folded."""
    folded = (re.sub(r"\s+", " ", part).strip() for part in text.split("|"))
    return tuple(part for part in folded if part)
