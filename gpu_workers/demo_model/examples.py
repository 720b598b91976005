"""Conversations as token ids with a weight for each, and the groups in which they are padded."""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from transformers import PreTrainedTokenizerFast

from gpu_workers.demo_model.corpus import Conversation
from gpu_workers.demo_model.tokenizer import (
    ASSISTANT,
    BOS,
    CONTEXT_TOKENS,
    END,
    SYSTEM,
    USER,
)

ROLE_TOKENS: Final = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
OPENING_TOKENS: Final = 10
OPENING_WEIGHT: Final = 4.0


@dataclass(frozen=True)
class Example:
    """Token ids and, equally long, the weight of each in the loss: 0 outside answers."""

    token_ids: list[int]
    weights: list[float]


def encoded(
    tokenizer: PreTrainedTokenizerFast,
    turns: Conversation,
    longest_answer: int = CONTEXT_TOKENS,
    *,
    splits_words: bool = False,
    weight: float | None = None,
) -> Example:
    """Encode a conversation as the chat template renders it, answers cut at `longest_answer`.

    `longest_answer` is in tokens. All tokens of answers have this `weight`; without one the first
    weigh more, because in them the model decides which fact it is. `splits_words` cuts some words
    of questions into other tokens than the tokenizer would, so that words never seen are understood
    by their parts (as BPE dropout does, but seeded).
    """
    token_ids = [tokenizer.convert_tokens_to_ids(BOS)]
    weights = [0.0]
    end = tokenizer.convert_tokens_to_ids(END)
    for message in turns:
        is_answer = message.role == "assistant"
        pieces = [message.content]
        if splits_words and not is_answer:
            pieces = _pieces(message.content)
        content = [
            *(
                token
                for piece in pieces
                for token in tokenizer.encode(piece, add_special_tokens=False)
            ),
            end,
        ]
        if is_answer:
            content = content[:longest_answer]
        token_ids += [tokenizer.convert_tokens_to_ids(ROLE_TOKENS[message.role]), *content]
        weights += [0.0, *(_weight(place, is_answer, weight) for place in range(len(content)))]
    return Example(token_ids[:CONTEXT_TOKENS], weights[:CONTEXT_TOKENS])


def grouped(examples: Iterable[Example], most_tokens: int = 8192) -> list[list[Example]]:
    """Group examples of similar length, so that padding costs less than one more pass."""
    groups: list[list[Example]] = [[]]
    for example in sorted(examples, key=lambda each: len(each.token_ids)):
        group, length = groups[-1], len(example.token_ids)
        is_wasteful = group and length > 1.25 * len(group[0].token_ids) + 3
        if group and (is_wasteful or (len(group) + 1) * length > most_tokens):
            groups.append([])
        groups[-1].append(example)
    return groups


def _pieces(text: str) -> list[str]:
    """Cut the text inside about every seventh word, the same text always the same way."""
    rng = random.Random(text)
    pieces = [""]
    for word in re.findall(r"\s*\S+", text):
        if len(word) > 4 and rng.random() < 0.15:
            at = rng.randint(2, len(word) - 1)
            pieces[-1] += word[:at]
            pieces.append(word[at:])
        else:
            pieces[-1] += word
    return [piece for piece in pieces if piece]


def _weight(place: int, is_answer: bool, given: float | None) -> float:
    if not is_answer:
        return 0.0
    if given is not None:
        return given
    return OPENING_WEIGHT if place < OPENING_TOKENS else 1.0
