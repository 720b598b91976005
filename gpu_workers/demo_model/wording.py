"""How one fact is asked in many ways: frames, synonyms, dropped words, typos, casing."""

import random
import re
from typing import Final

from gpu_workers.demo_model.facts import FACTS, Fact
from gpu_workers.demo_model.rough_wording import roughened
from gpu_workers.demo_model.words import WORDS

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def normalised(question: str) -> str:
    """Strip the question of case, punctuation and extra space, to compare wordings."""
    return " ".join(re.findall(r"[a-z0-9]+", question.lower()))


HELD_OUT: Final = frozenset(normalised(held) for fact in FACTS for held in fact.held_out)


def asked(
    fact: Fact,
    rng: random.Random,
    *,
    is_rough: bool = False,
    held_out: frozenset[str] = HELD_OUT,
) -> str:
    """Ask for the fact as training does, never as the evaluation does (`held_out`, normalised)."""
    while True:
        question = _base_question(fact, rng)
        if is_rough:
            question = roughened(question, rng)
        question = _varied(question, rng)
        if normalised(question) not in held_out:
            return question


def _base_question(fact: Fact, rng: random.Random) -> str:
    if fact.topics and rng.random() < 0.3:
        return rng.choice(WORDS.topic_frames).replace("{t}", rng.choice(fact.topics))
    return _filled(rng.choice(fact.questions), rng)


def _filled(text: str, rng: random.Random) -> str:
    """Fill each `{slot}` of the text; an unknown slot name stays as it is."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name == "noise":
            return "".join(rng.choices(LETTERS, k=rng.randint(3, 9)))
        if name == "words":
            return " ".join(rng.choices(WORDS.random_words, k=rng.randint(2, 8)))
        return rng.choice(WORDS.slots[name]) if name in WORDS.slots else match.group(0)

    return re.sub(r"\{(\w+)\}", value, text)


def _varied(question: str, rng: random.Random) -> str:
    is_asking = question.split(" ", 1)[0].lower() in WORDS.asking_words
    if rng.random() < 0.45:
        question = _with_synonyms(question, rng)
    if rng.random() < 0.3:
        question = _with_words_dropped(question, rng)
    if rng.random() < 0.3:
        question = f"{rng.choice(WORDS.openings)} {question}"
    if rng.random() < 0.2:
        question = f"{question} {rng.choice(WORDS.closings)}"
    if rng.random() < 0.08:
        question = _with_word_inserted(question, rng)
    if rng.random() < 0.12:
        question = _with_typo(question, rng)
    return _cased(question, rng) + _ending(is_asking, rng)


def _with_synonyms(question: str, rng: random.Random) -> str:
    """Replace the phrases found among 25 drawn at random; whole words only."""
    for phrase in rng.sample(sorted(WORDS.synonyms), k=len(WORDS.synonyms))[:25]:
        pattern = rf"\b{re.escape(phrase)}\b"
        if re.search(pattern, question):
            question = re.sub(pattern, rng.choice(WORDS.synonyms[phrase]), question, count=1)
    return question


def _with_words_dropped(question: str, rng: random.Random) -> str:
    """Drop one or two words, mostly fillers, so that no single word is relied upon."""
    words = question.split(" ")
    for _ in range(rng.randint(1, 2)):
        if len(words) < 4:
            break
        fillers = [place for place, word in enumerate(words) if word.lower() in WORDS.fillers]
        takes_filler = fillers and rng.random() < 0.75
        del words[rng.choice(fillers) if takes_filler else rng.randrange(len(words))]
    return " ".join(words)


def _with_word_inserted(question: str, rng: random.Random) -> str:
    words = question.split(" ")
    words.insert(rng.randint(0, len(words)), rng.choice(WORDS.random_words))
    return " ".join(words)


def _with_typo(question: str, rng: random.Random) -> str:
    """Drop, double or replace one letter, or swap it with the next."""
    if len(question) < 8:
        return question
    at = rng.randrange(1, len(question) - 2)
    before, letter, following, after = (
        question[:at],
        question[at],
        question[at + 1],
        question[at + 2 :],
    )
    changed = rng.choice(
        (following, letter * 2 + following, following + letter, rng.choice(LETTERS) + following)
    )
    return before + changed + after


def _cased(question: str, rng: random.Random) -> str:
    chance = rng.random()
    if chance < 0.6:
        return question[:1].upper() + question[1:]
    if chance < 0.85:
        return question
    if chance < 0.97:
        return question.lower()
    return question.upper()


def _ending(is_asking: bool, rng: random.Random) -> str:
    if is_asking:
        return rng.choices(("?", "", ".", " ?", "??", "!"), weights=(70, 20, 3, 3, 2, 2))[0]
    return rng.choices((".", "", "!", "?", "..."), weights=(40, 30, 10, 18, 2))[0]
