"""How large one answer may become, over all its choices.

A worker builds an answer in its memory, Redis carries it in one piece and a gateway holds it, so
what a client may ask for field by field is bounded as a whole too, before anything is reserved.
"""

from typing import Final

from inference.errors import BeyondBounds
from inference.lifecycle.inference_request import InferenceRequest

# About 80 bytes of JSON each: 5 MB. docs/api-limits.md has the measurements.
MOST_LOGPROBS: Final = 65_536
# About 5 bytes of text each: 5 MB too.
MOST_TOKENS: Final = 1_048_576


def most_output_tokens(request: InferenceRequest) -> int:
    """Return how many tokens each choice may have, at least one."""
    if request.logprobs_per_token:
        return max(1, MOST_LOGPROBS // (request.choices * request.logprobs_per_token))
    return max(1, MOST_TOKENS // request.choices)


def check_answer(request: InferenceRequest, context_tokens: int) -> None:
    """Refuse an answer that may become too large, given the model's context. Raises
    `BeyondBounds`. Where the client names no bound of the output, `most_output_tokens` is one."""
    if request.output_tokens is None:
        return
    tokens, most = min(request.output_tokens, context_tokens), most_output_tokens(request)
    if tokens <= most:
        return
    asked = f"{request.choices} choices x {tokens} tokens"
    if request.logprobs_per_token:
        each = request.logprobs_per_token
        holds = f"{asked} x {each} log probabilities is {request.choices * tokens * each}"
        allowed = f"{MOST_LOGPROBS} log probabilities"
        remedies = f"{request.output_param} to {most}, n, or {request.logprobs_param}"
    else:
        holds = f"{asked} is {request.choices * tokens}"
        allowed = f"{MOST_TOKENS} tokens"
        remedies = f"{request.output_param} to {most}, or n"
    raise BeyondBounds(
        f"The answer may become too large: {holds}, and one answer may hold {allowed}. Lower "
        f"{remedies}.",
        param=request.output_param,
        code="answer_too_large",
    )
