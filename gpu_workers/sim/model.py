"""The simulated model: how many tokens a text has, and which it answers with, by the text alone."""

import hashlib
import random
from typing import Final

from gpu_workers.sim.endpoints.endpoint import BYTES_PER_PROMPT_TOKEN, SharedFields

WORDS: Final = (  # noqa: SIM905 - easier to read
    "water gate turbine penstock river flow spill level pressure valve channel meter basin "
    "stream wheel power shaft intake weir sluice reservoir surge head tail race dam lock "
    "canal pump pipe bore crest runner nozzle vane guide drum float tide rain"
).split()
MAX_TOKEN_BYTES: Final = max(len(word) for word in WORDS) + 1


def count_tokens(text: bytes) -> int:
    """Return the tokens of a prompt's text, at least one."""
    return max(1, -(-len(text) // BYTES_PER_PROMPT_TOKEN))


class SimSequence:
    """One choice: its planned tokens, each an id and a text, and how many are generated so far."""

    def __init__(
        self, tokens: list[tuple[int, str]], finish_reason: str, generated: int = 0
    ) -> None:
        self.tokens = tokens
        self.finish_reason = finish_reason
        self.generated = generated

    @property
    def is_ended(self) -> bool:
        return self.generated >= len(self.tokens)

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.tokens[: self.generated])

    @property
    def token_ids(self) -> list[int]:
        return [token_id for token_id, _ in self.tokens[: self.generated]]

    def resumed(self, token_ids: list[int]) -> "SimSequence":
        """Return the same sequence with these tokens generated already, whatever was planned in
        their place."""
        before = _tokens(token_ids)
        return SimSequence(
            [*before, *self.tokens[len(before) :]], self.finish_reason, generated=len(before)
        )


def plan_sequence(prompt: bytes, choice: int, fields: SharedFields, limit: int) -> SimSequence:
    """Draw the tokens that answer a prompt, at most `limit`; each choice has its own."""
    seed = hashlib.blake2s(prompt + choice.to_bytes(2, "big")).digest()
    draw = random.Random(seed)
    length = max(12 + int(draw.random() * 48), fields.min_tokens)
    if fields.ignore_eos:
        length = limit
    finish_reason = "stop" if length <= limit and not fields.ignore_eos else "length"
    tokens = _tokens([int(draw.random() * len(WORDS)) for _ in range(min(length, limit))])
    return _cut_at_stop(tokens, fields.stops) or SimSequence(tokens, finish_reason)


def _tokens(token_ids: list[int]) -> list[tuple[int, str]]:
    """Return the ids with their texts: all but the first begin with a space."""
    return [
        (token_id, f" {WORDS[token_id]}" if position else WORDS[token_id])
        for position, token_id in enumerate(token_ids)
    ]


def _cut_at_stop(tokens: list[tuple[int, str]], stops: list[str]) -> SimSequence | None:
    """Return the tokens up to the one that completes a stop string, whose text is left out as vLLM
    does; None if there is no stop string."""
    text = ""
    for count, (_, piece) in enumerate(tokens, start=1):
        text += piece
        found = [text.index(stop) for stop in stops if stop in text]
        if found:
            end, kept = min(found), []
            for token_id, each in tokens[:count]:
                kept.append((token_id, each[: max(0, end)]))
                end -= len(each)
            return SimSequence(kept, "stop")
    return None
