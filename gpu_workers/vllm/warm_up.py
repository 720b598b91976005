"""One request of each kind before the first client's: what is compiled, imported or allocated at
first use is so before anybody waits for it."""

import asyncio
from typing import Any, Final

import structlog

from gpu_workers.protocol.messages import Api
from gpu_workers.vllm.endpoints.registry import ENDPOINTS, PLAINEST
from gpu_workers.vllm.probe_requests import Serving, answer_to, probe_request

# Compiling may take minutes; what takes longer does not come back.
KIND_SECONDS: Final = 900.0
TOKENS: Final = 3
# Longer prompts are cut into steps of as many tokens, or fewer, by every configuration we know.
LONGEST_PROMPT_TOKENS: Final = 32_768
SPARE_TOKENS: Final = 64
SOME_TOKEN_ID: Final = 1  # any vocabulary has it

_SCHEMA: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "count": {"type": "integer"}},
    "required": ["name", "count"],
}
_JSON_SCHEMA: Final = {"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA}}
_RANDOM: Final = {"temperature": 0.9}
# What takes a path of its own through sampler, grammar or tokenizer, of whichever endpoint.
KINDS: Final[dict[str, dict[str, Any]]] = {
    "random": _RANDOM,
    "seed": _RANDOM | {"seed": 1},
    "top_k": _RANDOM | {"top_k": 20},
    "top_p": _RANDOM | {"top_p": 0.9},
    "top_k_and_top_p": _RANDOM | {"top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "logit_bias": {"logit_bias": {"0": -1.0}, "min_tokens": 2},
    "bad_words": {"bad_words": ["penstock"]},
    "stop": {"stop": ["."]},
    "json_schema": {"response_format": _JSON_SCHEMA},
    "json_object": {"response_format": {"type": "json_object"}},
    "regex": {"structured_outputs": {"regex": "[a-z]{2,4}"}},
    "choice": {"structured_outputs": {"choice": ["gate", "flow"]}},
    "several_choices": _RANDOM | {"n": 2},
}

Kind = tuple[str, Api, dict[str, Any]]

_log = structlog.get_logger("gpu_workers.vllm.warm_up")


async def warm_up(serving: Serving, *, model: str, context_tokens: int) -> None:
    """Run each kind alone, then all of them at once, as code is compiled for one sequence and for
    several; and a long prompt, which is the longest step there is. Raises `EngineDied` if the
    engine dies of it."""
    kinds = _kinds()
    for kind in kinds:
        await _run(serving, kind, model=model, stream=False)
    length = max(1, min(context_tokens, LONGEST_PROMPT_TOKENS) - SPARE_TOKENS)
    long_prompt = ENDPOINTS[PLAINEST].question | {"prompt": [SOME_TOKEN_ID] * length}
    kinds.append(("long_prompt", PLAINEST, long_prompt))
    await asyncio.gather(*(_run(serving, kind, model=model, stream=True) for kind in kinds))


def _kinds() -> list[Kind]:
    """Return what every endpoint renders in a way of its own, and of one all else."""
    kinds = [
        (name, api, endpoint.question | fields)
        for api, endpoint in ENDPOINTS.items()
        for name, fields in {"plain": {}, **endpoint.kinds}.items()
    ]
    plainest = ENDPOINTS[PLAINEST].question
    return kinds + [(name, PLAINEST, plainest | fields) for name, fields in KINDS.items()]


async def _run(serving: Serving, kind: Kind, *, model: str, stream: bool) -> None:
    """Run one; a model that does not do this kind refuses it, now as later."""
    name, api, body = kind
    envelope = probe_request(api, body, model=model, tokens=TOKENS, stream=stream)
    answer = await answer_to(serving, envelope, seconds=KIND_SECONDS)
    if answer.problem:
        _log.info("kind_not_warmed", kind=name, api=api.value, problem=answer.problem)
