"""The words around the facts, from words.toml: with them the corpus asks in many ways."""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from gpu_workers.demo_model.data_file import Line, Lines, read

WordSet = Annotated[frozenset[Line], msgspec.Meta(min_length=1)]
Choices = dict[Line, Lines]
"""What may stand in the place of a word or phrase."""


class RoughWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `rough_wording` changes questions with."""

    frames: Lines  # other beginnings of a question
    everyday_words: Lines  # put between or in place of small words; they mean nothing here
    remarks: Lines  # sentences before the question
    word_choices: Choices  # by a word of the question, often less well chosen than a synonym


class Words(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `wording` and `corpus` make questions and conversations of."""

    random_words: Lines  # noise in and before a question
    topic_frames: Lines  # questions about a fact's topic, which stands for `{t}`
    openings: Lines  # before a question
    closings: Lines  # after a question
    asking_words: WordSet  # a question that begins so ends with a question mark more often
    fillers: WordSet  # the first to be left out
    system_prompts: Lines
    slots: Choices  # by the name of a slot: what `{city}` stands for in a question
    synonyms: Choices  # by a phrase of the question
    rough: RoughWords


WORDS: Final = read(
    Path(__file__).with_suffix(".toml"),
    Words,
    remedy="Correct it as the fields of Words in words.py describe.",
)
