"""Refuses to echo a prompt with more log probabilities than an engine gives at a time.

Those of an output come step by step. Those of a prompt come all at once, and only the worker knows
how many tokens it has.
"""

from typing import Final

from gpu_workers.protocol.messages import WireError
from gpu_workers.requests.refusal import invalid_request

# Of all prompts and choices together. Measured: see docs/api-limits.md.
MOST_ECHOED_LOGPROBS: Final = 8_192


def echo_refusal(prompt_tokens: int, choices: int, alternatives: int) -> WireError | None:
    """Return the error if the echo of so many tokens, over all prompts, with so many `alternatives`
    each, has too many log probabilities; None if it does not."""
    asked = prompt_tokens * choices * (1 + alternatives)
    if asked <= MOST_ECHOED_LOGPROBS:
        return None
    return invalid_request(
        f"The echo of {prompt_tokens} tokens with n={choices} and logprobs={alternatives} has "
        f"{asked} log probabilities; at most {MOST_ECHOED_LOGPROBS} are given. Nothing was "
        "generated or charged. Send shorter prompts or fewer of them, or lower n or logprobs.",
        code="answer_too_large",
        param="echo",
    )
