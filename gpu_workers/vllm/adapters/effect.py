"""Finds out what a LoRA adapter makes of vLLM's answers, while others are served."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec
import torch
from vllm.inputs import TokensInput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.exceptions import EngineDeadError

from gpu_workers.adapter_effect import (
    PROMPTS,
    TOP,
    Answers,
    NextToken,
    effect_of,
    least_difference,
)
from gpu_workers.engine import EngineDied, ProbeFailed
from gpu_workers.protocol.adapters import AdapterEffect
from gpu_workers.protocol.messages import Envelope
from gpu_workers.vllm.endpoints.registry import PLAINEST
from gpu_workers.vllm.generation import Generation
from gpu_workers.vllm.probe_requests import probe_request

# A step or two where there is room; an engine that is full to the brim is not waited for.
PROBE_SECONDS: Final = 5.0
# After everybody in vLLM's order, and the first to give way.
LAST: Final = 2**31 - 1

# Count a request of the worker's own, under an adapter or none.
OwnGeneration = Callable[[Envelope, Any], AbstractContextManager[Generation]]


class EffectProbe:
    """Asks one engine for the next tokens of a few prompts, by an adapter and by none; those of the
    base once, and by how much they stray."""

    def __init__(self, llm: Any, own_generation: OwnGeneration, *, model: str) -> None:
        self._llm = llm
        self._own_generation = own_generation
        self._model = model
        self._prompts: list[list[int]] = []
        self._base: Answers = []
        self._least = 0.0
        self._learning = asyncio.Lock()

    async def learn_base(self) -> None:
        """Ask the base, if it has not answered: each prompt alone, and all at once. Raises
        `ProbeFailed` or `EngineDied`."""
        async with self._learning:
            if self._base:
                return
            encode = self._llm.renderer.get_tokenizer().encode
            self._prompts = [encode(prompt) for prompt in PROMPTS]
            alone = [await self._ask(prompt, None) for prompt in self._prompts]
            epsilon = torch.finfo(self._llm.vllm_config.model_config.dtype).eps
            self._least = least_difference([alone, await self._ask_all(None)], epsilon)
            self._base = alone

    async def effect_of(self, lora_request: Any) -> AdapterEffect:
        """Raises `ProbeFailed` or `EngineDied`."""
        await self.learn_base()
        return effect_of(self._base, await self._ask_all(lora_request), self._least)

    async def _ask_all(self, lora_request: Any) -> Answers:
        """Return when none of them is in the engine any more: the adapter may go then."""
        asking = (self._ask(each, lora_request) for each in self._prompts)
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for each in answers:
            if isinstance(each, BaseException):
                raise each
        return [each for each in answers if not isinstance(each, BaseException)]

    async def _ask(self, prompt: list[int], lora_request: Any) -> NextToken:
        """Return the most likely next tokens. Raises `ProbeFailed` if they do not come in time."""
        envelope = probe_request(PLAINEST, {}, model=self._model, tokens=1)
        envelope = msgspec.structs.replace(envelope, priority=LAST)
        with self._own_generation(envelope, lora_request) as generation:
            asking = asyncio.create_task(_first(self._generate(envelope, prompt)))
            try:
                await asyncio.wait([asking], timeout=PROBE_SECONDS)
                if not asking.done():
                    await self._llm.abort_generation(generation)
                output = await asking
            except EngineDeadError as error:
                raise EngineDied("vLLM's engine process has died") from error
            except Exception as error:
                raise ProbeFailed(f"vLLM refuses a probe prompt: {error}") from error
            finally:
                asking.cancel()
        if not (found := output.outputs[0].logprobs):
            raise ProbeFailed(f"no answer in {PROBE_SECONDS:g} s")
        return {token: each.logprob for token, each in found[0].items()}

    def _generate(self, envelope: Envelope, prompt: list[int]) -> AsyncIterator[Any]:
        inputs = TokensInput(
            type="token", prompt_token_ids=list(prompt), cache_salt=envelope.cache_salt
        )
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            logprobs=TOP,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        outputs: AsyncIterator[Any] = self._llm.generate(
            inputs, parameters, f"probe-{envelope.request_id}"
        )
        return outputs


async def _first(outputs: AsyncIterator[Any]) -> Any:
    """Return the one output, and let its generator come to its end."""
    (output,) = [each async for each in outputs]
    return output
