"""The log probabilities of a whole answer: rendered by vLLM's own methods, a few tokens at a time.

vLLM builds an answer in one go, which holds the event loop for a second where 65,000 of them are
asked for. So vLLM renders the answer without them; then they are rendered in pieces, with a turn of
the loop after each, and put where vLLM has left a null.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from vllm.entrypoints.openai.completion.protocol import CompletionLogProbs

# Log probabilities, a few milliseconds' work.
_PIECE: Final = 512
# No text holds this: its quotation marks would be escaped.
_KEY: Final = b'"logprobs":'
_PLACE: Final = _KEY + b"null"

# However many answers there are, one of them is built at a time: so a turn takes one piece.
_building: Final = asyncio.Lock()

# Renders the tokens from one position to another, of an output of the engine.
Render = Callable[[Any, int, int], Any]


def put_in_place(body: bytes, logprobs: Sequence[bytes]) -> bytes:
    """Return the JSON of an answer with these log probabilities of its choices, in their order."""
    first, *parts = body.split(_PLACE)
    if len(parts) != len(logprobs):
        raise ValueError(f"{len(logprobs)} choices, but {len(parts)} places for logprobs")
    filled = [first]
    for value, part in zip(logprobs, parts, strict=True):
        filled += (_KEY, value, part)
    return b"".join(filled)


async def chat_logprobs(outputs: Sequence[Any], render: Render, entries: int) -> list[bytes]:
    """Render each output's `logprobs` of a chat completion."""
    rendered = []
    async with _building:
        for output in outputs:
            pieces = [
                piece.model_dump_json().encode()[len('{"content":[') : -len("]}")]
                async for piece in _pieces(output, render, entries)
            ]
            rendered.append(b'{"content":[' + b",".join(pieces) + b"]}")
    return rendered


async def completion_logprobs(outputs: Sequence[Any], render: Render, entries: int) -> list[bytes]:
    """Render each output's `logprobs` of a completion."""
    rendered = []
    async with _building:
        for output in outputs:
            whole: dict[str, list[str]] = {name: [] for name in CompletionLogProbs.model_fields}
            offset = 0
            async for piece in _pieces(output, render, entries):
                piece.text_offset = [each + offset for each in piece.text_offset]
                offset = piece.text_offset[-1] + len(piece.tokens[-1])
                for name, parts in whole.items():
                    field = piece.model_dump_json(include={name})
                    parts.append(field[len(f'{{"{name}":[') : -len("]}")])
            fields = ",".join(f'"{name}":[{",".join(parts)}]' for name, parts in whole.items())
            rendered.append(f"{{{fields}}}".encode())
    return rendered


async def _pieces(output: Any, render: Render, entries: int) -> AsyncIterator[Any]:
    tokens = max(1, _PIECE // entries)
    for start in range(0, len(output.token_ids), tokens):
        yield render(output, start, start + tokens)
        await asyncio.sleep(0)
