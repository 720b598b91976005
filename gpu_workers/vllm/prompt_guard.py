"""Refuses a prompt before it is tokenized if it cannot fit the context however that is done.

vLLM tokenizes in a thread, one prompt after another, and refuses beforehand what is longer than the
context times the longest token. That lets megabytes through, which all others then wait for.
"""

import asyncio
import json
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from vllm.exceptions import VLLMValidationError

from gpu_workers.requests.token_lower_bound import TokenLowerBound

# Steps before the vocabulary that only cut a text into pieces.
_CUTTING: Final = ("ByteLevel", "Split", "Digits", "Punctuation", "Sequence")
_IN_A_THREAD: Final = 64 * 1024

Tokenize = Callable[[Any, Any], Awaitable[Any]]


def guard_prompts(renderer: Any) -> None:
    """Have vLLM's renderer check each text before it tokenizes it; do nothing where it cannot be
    told how the tokenizer treats a text."""
    bound = token_lower_bound_of(renderer.get_tokenizer())
    if bound is None:
        return
    tokenize: Tokenize = renderer._tokenize_prompt_async

    async def tokenize_guarded(prompt: Any, params: Any) -> Any:
        if params.truncate_prompt_tokens is None:
            await _check(prompt["prompt"], params.max_input_tokens, bound)
        return await tokenize(prompt, params)

    renderer._tokenize_prompt_async = tokenize_guarded


def token_lower_bound_of(tokenizer: Any) -> TokenLowerBound | None:
    """Return the bound for a byte-level tokenizer; None for any other, of which a token may stand
    for more of a text than its own bytes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    described = json.loads(backend.to_str())
    normalizer, cutting = described["normalizer"], list(_steps(described["pre_tokenizer"]))
    is_byte_level = any(step["type"] == "ByteLevel" for step in cutting)
    only_cuts = all(
        step["type"] in _CUTTING and step.get("behavior") != "Removed" for step in cutting
    )
    keeps_length = normalizer is None or normalizer["type"] == "NFC"
    if described["model"]["type"] != "BPE" or not (is_byte_level and only_cuts and keeps_length):
        return None
    added = described["added_tokens"]
    if any(token["lstrip"] or token["rstrip"] for token in added):
        return None
    own = {token["content"] for token in added}
    characters = _bytes_of_characters()
    vocabulary = [token for token in described["model"]["vocab"] if token not in own]
    if not all(characters.keys() >= set(token) for token in vocabulary):
        return None
    tokens = [bytes(map(characters.__getitem__, token)) for token in vocabulary]
    return TokenLowerBound([*tokens, *(token.encode() for token in own)])


async def _check(text: str, context: int | None, bound: TokenLowerBound) -> None:
    data = text.encode()
    if context is None or len(data) <= context:
        return
    is_long = len(data) > _IN_A_THREAD
    fewest = await asyncio.to_thread(_fewest, text, bound) if is_long else _fewest(text, bound)
    if fewest > context:
        raise VLLMValidationError(
            f"This model's maximum context length is {context} tokens, but the prompt has at least "
            f"{fewest}, however it is tokenized. Please shorten it.",
            parameter="input_text",
        )


def _fewest(text: str, bound: TokenLowerBound) -> int:
    """Return the bound of a text and of its composed form, whichever the tokenizer takes."""
    fewest = bound(text.encode())
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return fewest
    return min(fewest, bound(unicodedata.normalize("NFC", text).encode()))


def _steps(pre_tokenizer: Any) -> Iterator[dict[str, Any]]:
    if pre_tokenizer is not None:
        yield pre_tokenizer
        for step in pre_tokenizer.get("pretokenizers", ()):
            yield from _steps(step)


def _bytes_of_characters() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for, as GPT-2 has
    it: printable bytes for themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }
