"""The conversations that the demo model is trained on, a pure function of seed and index."""

import random
from dataclasses import dataclass
from typing import Final, Literal

from gpu_workers.demo_model.facts import FACTS, Fact
from gpu_workers.demo_model.wording import asked
from gpu_workers.demo_model.words import WORDS

Role = Literal["system", "user", "assistant"]

SYSTEM_PROMPT_SHARE: Final = 0.35
LONG_PROMPT_SHARE: Final = 0.04


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


Conversation = tuple[Message, ...]


def conversation(seed: int, index: int, *, is_rough: bool = False) -> Conversation:
    """Return conversation number `index` of the corpus of `seed`.

    About two thirds have one question, most others two to five, and one in thirty has up to
    twenty, so that the model stays stable on prompts of about a thousand tokens. `is_rough` asks
    in the words of `rough_wording`.
    """
    rng = random.Random(f"{seed}/{index}")
    messages: list[Message] = []
    if rng.random() < SYSTEM_PROMPT_SHARE:
        messages.append(Message("system", _system_prompt(rng)))
    for fact in rng.sample(FACTS, k=_turns(rng)):
        question = asked(fact, rng, is_rough=is_rough)
        if rng.random() < LONG_PROMPT_SHARE:
            question = f"{_preamble(rng)} {question}"
        messages.append(Message("user", question))
        messages.append(Message("assistant", fact.answer))
    return tuple(messages)


def single_question(seed: int, index: int, *, is_rough: bool = False) -> Conversation:
    """Return number `index` of the short conversations: one question and its answer."""
    rng = random.Random(f"{seed}/single/{index}")
    fact = rng.choice(FACTS)
    turns = (
        Message("user", asked(fact, rng, is_rough=is_rough)),
        Message("assistant", fact.answer),
    )
    if rng.random() < SYSTEM_PROMPT_SHARE / 2:
        return (Message("system", _system_prompt(rng)), *turns)
    return turns


def held_out_questions() -> tuple[tuple[Fact, str], ...]:
    """Return every question of the evaluation with the fact that its answer has to hold."""
    return tuple((fact, question) for fact in FACTS for question in fact.held_out)


def _turns(rng: random.Random) -> int:
    chance = rng.random()
    if chance < 0.66:
        return 1
    if chance < 0.97:
        return rng.randint(2, 5)
    return rng.randint(8, 20)


def _system_prompt(rng: random.Random) -> str:
    prompt = rng.choice(WORDS.system_prompts)
    if rng.random() < 0.3:
        prompt = f"{prompt} {rng.choice(WORDS.system_prompts)}"
    if rng.random() < 0.1:
        prompt = " ".join(rng.choices(WORDS.random_words, k=rng.randint(3, 60)))
    return prompt


def _preamble(rng: random.Random) -> str:
    """Return text to precede the question: a pasted passage, or filler as of a load test."""
    if rng.random() < 0.5:
        return " ".join(rng.choices(WORDS.random_words, k=rng.randint(5, 120))) + "."
    return " ".join(fact.answer for fact in rng.sample(FACTS, k=rng.randint(1, 4)))
