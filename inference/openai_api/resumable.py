"""Which requests another worker may go on with after their first token.

Its engine is given the output so far as if that were part of the prompt. That is sound where the
choice of a token depends on the tokens before it and on nothing else that the first engine knew,
and where the text of an answer follows from its tokens alone.
"""

from functools import cache
from typing import Any, Final

from inference.openai_api.sampling import SamplingFields, TextFormat

# Whatever their value. A field that is not named here must not have been given.
_SOUND: Final = frozenset(
    {
        "add_generation_prompt",
        "add_special_tokens",
        "allowed_token_ids",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "ignore_eos",
        "include_stop_str_in_output",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "min_tokens",
        "model",
        "parallel_tool_calls",
        "prompt",
        "reasoning_effort",
        "seed",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "stream",
        "stream_options",
        "temperature",
        "top_k",
        "top_p",
        "truncate_prompt_tokens",
        "truncation_side",
    }
)
# What asks for nothing.
_HARMLESS: Final[dict[str, Any]] = {
    "n": 1,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "logit_bias": {},
    "bad_words": [],
    "stop": [],
    "tool_choice": "none",
    "response_format": TextFormat(),
    "logprobs": False,
    "top_logprobs": 0,
    "echo": False,
    "include_reasoning": True,
    "return_token_ids": False,
    "return_tokens_as_token_ids": False,
    "return_prompt_text": False,
    "stream_interval": 1,
}


def is_resumable(body: SamplingFields, *, choices: int) -> bool:
    """Return whether another worker may resume a validated body. `choices` counts the outputs over
    all its prompts."""
    if choices != 1 or (body.seed is not None and body.temperature != 0):
        return False
    for name in _to_look_at(type(body)):
        value = getattr(body, name)
        if value is None:
            continue
        if name == "tools" and getattr(body, "tool_choice", None) == "none":
            continue
        harmless = _HARMLESS.get(name)
        if type(value) is not type(harmless) or value != harmless:
            return False
    return True


@cache
def _to_look_at(kind: type[SamplingFields]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in _SOUND)
