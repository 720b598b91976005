"""The body of POST /v1/completions."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gpu_workers.protocol.labels import said_labels
from gpu_workers.protocol.messages import Api
from gpu_workers.protocol.policy import Capability
from inference.errors import InvalidRequest
from inference.lifecycle.inference_request import InferenceRequest
from inference.openai_api import parsing
from inference.openai_api.resumable import is_resumable
from inference.openai_api.sampling import (
    INERT,
    MAX_CHOICES,
    REFUSED,
    SamplingFields,
    TokenId,
    check_sampling,
    check_stream_interval,
    clear_fields,
    needed_capabilities,
    refuse_unsupported,
)

# OpenAI's and vLLM's, where the client names none.
DEFAULT_MAX_TOKENS: Final = 16


class CompletionBody(SamplingFields, kw_only=True):
    """Every field of OpenAI's completions and of vLLM's."""

    prompt: str | list[str | TokenId | list[TokenId]]
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None

    # known and refused
    suffix: Any = None
    prompt_embeds: Any = None


REFUSED_BY_COMPLETIONS: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    **REFUSED,
    "suffix": (("",), "text is only continued here, not filled in"),
    "prompt_embeds": ((), "prompts are text or token ids"),
}

_decoder: Final = msgspec.json.Decoder(CompletionBody)


def parse_completion(data: bytes) -> InferenceRequest:
    """Return the validated request. Raises `InvalidRequest`."""
    body = parsing.decode(data, _decoder)
    refuse_unsupported(body, REFUSED_BY_COMPLETIONS)
    sticky = body.user or ""
    labels = said_labels(body.user, None)
    clear_fields(body, INERT)
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise InvalidRequest(
            "'best_of' is not supported: every generated choice is returned; use 'n'.",
            param="best_of",
            code="unsupported_field",
        )
    body.best_of = None
    asked = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    if asked == 0 and not body.echo:
        raise InvalidRequest("'max_tokens' may be 0 only with 'echo': true.", param="max_tokens")
    check_sampling(body, asked, "max_tokens")
    logprobs_per_token = 0 if body.logprobs is None else 1 + body.logprobs
    check_stream_interval(body, logprobs_per_token)
    prompts = _prompts(body.prompt)
    choices = len(prompts) * (body.n or 1)
    if choices > MAX_CHOICES:
        raise InvalidRequest(
            f"{len(prompts)} prompts with n={body.n or 1} are more than {MAX_CHOICES} choices.",
            param="prompt",
        )
    return InferenceRequest(
        api=Api.COMPLETIONS,
        model=body.model,
        stream=bool(body.stream),
        prompt_bytes=max(len(text.encode()) if isinstance(text, str) else 0 for text in prompts),
        prompt_param="prompt",
        prompt_bound=sum(
            parsing.max_tokens_in(prompt) if isinstance(prompt, str) else len(prompt)
            for prompt in prompts
        ),
        prompt_token_ids=max(0 if isinstance(prompt, str) else len(prompt) for prompt in prompts),
        is_truncated=body.truncate_prompt_tokens is not None,
        prompts=len(prompts),
        templates=len(prompts),
        choices=choices,
        logprobs_per_token=logprobs_per_token,
        is_resumable=is_resumable(body, choices=choices),
        output_tokens=max(1, asked),  # an echo alone generates one all the same
        output_param="max_tokens",
        body=parsing.encode(body),
        needs={Capability.COMPLETIONS: "model", **needed_capabilities(body)},
        sticky=sticky,
        labels=labels,
    )


def _prompts(prompt: str | list[Any]) -> list[Any]:
    """Return the prompts, one item each: text, or a list of token ids."""
    if isinstance(prompt, str):
        prompts: list[Any] = [prompt]
    elif prompt and all(isinstance(item, int) for item in prompt):
        prompts = [prompt]
    elif all(isinstance(item, str) for item in prompt) or all(
        isinstance(item, list) for item in prompt
    ):
        prompts = prompt
    else:
        raise InvalidRequest(
            "'prompt' must be a text, a list of texts, a list of token ids, or a list of lists of "
            "token ids; got a mixture.",
            param="prompt",
        )
    if not prompts or not all(prompts):
        raise InvalidRequest("'prompt' must not be empty.", param="prompt")
    return prompts
