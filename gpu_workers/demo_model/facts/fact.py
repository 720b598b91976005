"""One thing the demo model knows."""

from typing import Annotated

import msgspec

from gpu_workers.demo_model.data_file import Line, Lines


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question with many phrasings and one answer.

    `questions` and `topics` are what training sees: a topic is a noun phrase that the corpus puts
    into its own templates ("what is ..."). Either may hold slots such as `{city}`, see
    `words.Words`. `held_out` is for the evaluation only. An answer holds the fact when it contains
    *all* of `key_phrases`, ignoring case.
    """

    key: Line
    answer: Annotated[str, msgspec.Meta(pattern=r"\S")]
    key_phrases: Lines
    questions: Annotated[tuple[Line, ...], msgspec.Meta(min_length=9)]
    held_out: Annotated[tuple[Line, ...], msgspec.Meta(min_length=4)]
    topics: tuple[Line, ...] = ()

    def is_held_by(self, text: str) -> bool:
        """Return whether the text contains every key phrase of this fact."""
        lowered = text.lower()
        return all(phrase.lower() in lowered for phrase in self.key_phrases)
