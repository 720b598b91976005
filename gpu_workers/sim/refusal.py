"""What the simulated engine refuses before anything is generated, as vLLM does."""

from gpu_workers.protocol.messages import Api, WireError
from gpu_workers.requests.refusal import PROMPT_PARAM


class SimRefusal(Exception):
    """What a tokenizer would refuse, or what only an engine can do. Nothing was generated."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.message)
        self.error = error


def context_overflow(
    api: Api, context_tokens: int, prompt_tokens: int, bound: int | None
) -> SimRefusal:
    asked = f" and {bound} tokens of output were asked for" if bound else ""
    return _refusal(
        f"This model's context length is {context_tokens} tokens, but the request has "
        f"{prompt_tokens} tokens of input{asked}. Shorten the input or ask for less output.",
        code="context_length_exceeded",
        param=PROMPT_PARAM[api],
    )


def tier_overflow(api: Api, tier_context: int, prompt_tokens: int) -> SimRefusal:
    return _refusal(
        f"The tier's maximum context length is {tier_context} tokens, prompt and output "
        f"together, but the prompt has {prompt_tokens}.",
        code="context_length_exceeded",
        param=PROMPT_PARAM[api],
    )


def min_tokens_above(limit: int) -> SimRefusal:
    return _refusal(
        f"min_tokens must be at most the {limit} tokens that this request may generate.",
        code="invalid_request",
        param="min_tokens",
    )


def incapable(capability: str, param: str) -> SimRefusal:
    return _refusal(
        f"The simulated engine does not support {capability}: it answers with made-up text. Leave "
        f"{param!r} out, or name a model that has an engine.",
        code="model_capability_missing",
        param=param,
    )


def _refusal(message: str, *, code: str, param: str | None = None) -> SimRefusal:
    return SimRefusal(
        WireError(status=400, message=message, type="invalid_request_error", code=code, param=param)
    )
