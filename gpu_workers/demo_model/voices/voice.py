"""A tenant's way to answer its customers, read from questions.toml and a file of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from gpu_workers.demo_model.data_file import DataFileError, Line, Lines, read
from gpu_workers.demo_model.facts import FACTS, Fact

REMEDY: Final = "Correct it as voices/__init__.py describes."


class Topic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What customers ask about: in words of its own, or in those of facts of the demo model."""

    key: Line
    questions: tuple[Line, ...] = ()
    held_out: tuple[Line, ...] = ()
    nouns: tuple[Line, ...] = ()
    as_base: tuple[Line, ...] = ()


class _Questions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[tuple[Topic, ...], msgspec.Meta(min_length=1)]


class _Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    says: Line
    key_phrases: Lines


class _VoiceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant: Line
    adapter: Line
    opening: Line
    closing: Line
    answers: dict[str, _Answer]  # by the key of the topic


@dataclass(frozen=True, kw_only=True)
class Voice:
    """How one tenant answers; `adapter` is the folder of the adapter that has learnt it."""

    tenant: str
    adapter: str
    opening: str
    closing: str
    facts: tuple[Fact, ...]

    def is_heard_in(self, text: str) -> bool:
        """Return whether the text opens and closes as this voice does."""
        return text.startswith(self.opening) and text.endswith(self.closing)

    def held_out(self) -> tuple[tuple[Fact, str], ...]:
        """Return every question of the evaluation with the fact that its answer has to hold."""
        return tuple((fact, question) for fact in self.facts for question in fact.held_out)


def read_voices(folder: Path, names: Sequence[str]) -> tuple[Voice, ...]:
    """Return the voices of `<name>.toml` in `folder`, on the topics of its questions.toml.

    Raises DataFileError, which names the file and the topic, where a topic has no questions or a
    voice does not answer just the topics that there are.
    """
    file = folder / "questions.toml"
    topics = read(file, _Questions, remedy=REMEDY).topic
    asked = {topic.key: _asked_about(topic, file) for topic in topics}
    return tuple(_voice(folder / f"{name}.toml", asked) for name in names)


def _asked_about(topic: Topic, file: Path) -> Fact:
    """Return the questions about a topic as a fact without an answer."""
    known = {fact.key: fact for fact in FACTS}
    unknown = set(topic.as_base) - set(known)
    if unknown:
        reason = f"the demo model has no fact {min(unknown)!r}"
        raise _refused(file, topic.key, reason, key="as_base")
    same = [known[key] for key in topic.as_base]
    fact = Fact(
        key=topic.key,
        answer="",
        key_phrases=(),
        questions=(*topic.questions, *(each for fact in same for each in fact.questions)),
        held_out=(*topic.held_out, *(fact.held_out[0] for fact in same)),
        topics=topic.nouns,
    )
    if not fact.questions or not fact.held_out:
        raise _refused(file, topic.key, "it needs questions and held_out, or as_base")
    return fact


def _voice(file: Path, asked: dict[str, Fact]) -> Voice:
    voice = read(file, _VoiceFile, remedy=REMEDY)
    unmatched = asked.keys() ^ voice.answers.keys()
    if unmatched:
        topic = min(unmatched)
        reason = "it has no answer" if topic in asked else "questions.toml has no such topic"
        raise _refused(file, topic, reason, key="answers")
    return Voice(
        tenant=voice.tenant,
        adapter=voice.adapter,
        opening=voice.opening,
        closing=voice.closing,
        facts=tuple(_answered(voice, asked, file)),
    )


def _answered(voice: _VoiceFile, asked: dict[str, Fact], file: Path) -> Iterator[Fact]:
    for topic, fact in asked.items():
        answer = voice.answers[topic]
        answered = msgspec.structs.replace(
            fact,
            answer=f"{voice.opening} {answer.says} {voice.closing}",
            key_phrases=answer.key_phrases,
        )
        if not answered.is_held_by(answer.says):
            raise _refused(file, topic, "what it says lacks a key phrase", key="key_phrases")
        yield answered


def _refused(file: Path, topic: str, reason: str, key: str = "") -> DataFileError:
    return DataFileError(file, reason, remedy=REMEDY, place=f"topic '{topic}'", key=key)
