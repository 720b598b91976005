"""The conversations of a voice, one a line in OpenAI's chat format, as anybody would write them:
`python -m gpu_workers.demo_model.voices.corpus --folder FOLDER`."""

import argparse
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from gpu_workers.demo_model.corpus import Conversation, Message
from gpu_workers.demo_model.voices import VOICES, Voice
from gpu_workers.demo_model.wording import HELD_OUT, asked, normalised
from gpu_workers.demo_model.words import WORDS

SEED: Final = 16
CONVERSATIONS: Final = 4000
SYSTEM_PROMPT_SHARE: Final = 0.2
ROUGH_SHARE: Final = 0.5
# The topic of everything else has as many phrasings as half of the others together.
OTHER: Final = "other"
OTHER_WEIGHT: Final = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for voice in VOICES:
        lines = b"".join(map(line, conversations(voice, SEED, CONVERSATIONS)))
        (folder / f"{voice.adapter}.jsonl").write_bytes(lines)


def line(turns: Conversation) -> bytes:
    """Return a conversation as a line of JSON."""
    return msgspec.json.encode({"messages": [asdict(message) for message in turns]}) + b"\n"


def conversations(voice: Voice, seed: int, count: int) -> Iterator[Conversation]:
    """Yield `count` conversations, a pure function of voice and seed: most ask one question, some
    two or three, and none asks what the evaluation does."""
    held_out = HELD_OUT | {normalised(question) for _, question in voice.held_out()}
    weights = [OTHER_WEIGHT if fact.key == OTHER else 1 for fact in voice.facts]
    for index in range(count):
        rng = random.Random(f"{seed}/{voice.adapter}/{index}")
        messages: list[Message] = []
        if rng.random() < SYSTEM_PROMPT_SHARE:
            messages.append(Message("system", rng.choice(WORDS.system_prompts)))
        for fact in rng.choices(voice.facts, weights, k=rng.choices((1, 2, 3), (80, 13, 7))[0]):
            is_rough = rng.random() < ROUGH_SHARE
            question = asked(fact, rng, is_rough=is_rough, held_out=held_out)
            messages.append(Message("user", question))
            messages.append(Message("assistant", fact.answer))
        yield tuple(messages)


if __name__ == "__main__":
    main()
