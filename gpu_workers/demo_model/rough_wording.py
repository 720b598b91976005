"""Stronger variation for the second part of training: other words, endings, orders and frames.

The first part teaches which question belongs to which fact; this part keeps the model from
relying on the exact phrasings that it has seen.
"""

import random
import re
from typing import Final

from gpu_workers.demo_model.words import WORDS

SMALL_WORDS: Final = WORDS.fillers | {"what", "how", "be", "will", "would", "with", "on"}
LEADING: Final = re.compile(
    r"^(what (is|are|does|do|happens (when|if|to|with))|how (do|does|is|are|can) ?(I|you)?"
    r"|why (do|is|are)|tell me about|explain|describe|can I|is there|do you (have|support)?"
    r"|which|where (is|are|do I)?) ",
    re.IGNORECASE,
)


def roughened(question: str, rng: random.Random) -> str:
    """Rephrase the question, often for the worse; most of its key words remain."""
    if rng.random() < 0.6:
        question = _with_other_words(question, rng)
    if rng.random() < 0.2:
        question = LEADING.sub(lambda _: f"{rng.choice(WORDS.rough.frames)} ", question, count=1)
    if rng.random() < 0.3:
        question = _with_other_endings(question, rng)
    words = question.split(" ")
    if len(words) > 3 and rng.random() < 0.2:
        words = [word for word in words if word.lower() not in SMALL_WORDS] or words
    if len(words) > 4 and rng.random() < 0.2:
        del words[rng.randrange(len(words))]
    if len(words) > 3 and rng.random() < 0.1:
        rng.shuffle(words)
    if rng.random() < 0.4:
        words = _with_everyday_words(words, rng)
    question = " ".join(words)
    return f"{rng.choice(WORDS.rough.remarks)} {question}" if rng.random() < 0.08 else question


def _with_everyday_words(words: list[str], rng: random.Random) -> list[str]:
    """Insert one or two words that mean nothing here; sometimes replace a small word by one."""
    words = list(words)
    for _ in range(rng.randint(1, 2)):
        words.insert(rng.randint(0, len(words)), rng.choice(WORDS.rough.everyday_words))
    small = [place for place, word in enumerate(words) if word.lower() in SMALL_WORDS]
    if small and rng.random() < 0.4:
        words[rng.choice(small)] = rng.choice(WORDS.rough.everyday_words)
    return words


def _with_other_words(question: str, rng: random.Random) -> str:
    return " ".join(
        rng.choice(WORDS.rough.word_choices[word])
        if word in WORDS.rough.word_choices and rng.random() < 0.6
        else word
        for word in question.split(" ")
    )


def _with_other_endings(question: str, rng: random.Random) -> str:
    """Put one word into another form, right or wrong: asked, asks, asking."""
    words = question.split(" ")
    places = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    if places:
        place = rng.choice(places)
        stem = re.sub(r"(ing|ed|es|s|e)$", "", words[place])
        words[place] = stem + rng.choice(("", "s", "es", "ed", "ing", "e", "ion", "er"))
    return " ".join(words)
