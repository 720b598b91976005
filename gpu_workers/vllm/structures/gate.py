"""Lets a request with a structure into the engine only if that can be compiled and followed.

vLLM checks a structure on the event loop, up to seconds, and its engine compiles what has passed
without any limit. Here it is tried first (`trials`), then vLLM's own check runs in a thread.
"""

import asyncio
from typing import Any, Final

from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.request import get_structured_output_key
from vllm.v1.structured_output.utils import choice_as_grammar, grammar_is_likely_lark

from gpu_workers.protocol.messages import Envelope, WireError
from gpu_workers.requests.refusal import RequestRefused, invalid_request
from gpu_workers.vllm.structures import trial
from gpu_workers.vllm.structures.trial import (
    Finding,
    Structure,
    StructureKind,
    Verdict,
    Vocabulary,
)
from gpu_workers.vllm.structures.trials import MOST_OWN_SECONDS, StructureTrials, TrialsFailed
from gpu_workers.vllm.structures.turns import OwnTrialsAhead

# Of CPU, for all choices of a request: what a step of the engine may take longer for it.
MOST_STEP_SECONDS: Final = 0.1
XGRAMMAR: Final = "xgrammar"
MEMORY_BYTES: Final = 1024 * 1024 * 1024
_RETRY_SECONDS: Final = 2

_UNAVAILABLE: Final = WireError(
    status=503,
    message="JSON schemas and grammars cannot be checked at the moment; ask again.",
    type="server_error",
    code="structures_unavailable",
    retry_after_seconds=_RETRY_SECONDS,
)

FOLLOWED_TOO_SLOWLY: Final = invalid_request(
    "The engine became slow for everybody while it followed the schema, pattern or grammar of this "
    "answer, the newest of those that it followed, so the answer ends here. What was generated is "
    "charged. Make it simpler, above all where it can be read in several ways, or lower max_tokens "
    "or n.",
    code="structure_too_costly",
)
_NOT_COMPILED: Final = invalid_request(
    "The schema, pattern or grammar that the answer has to follow could not be compiled. Nothing "
    "was generated or charged. Make it simpler.",
    code="structure_too_costly",
)


class StructureGate:
    """The gate of one engine. It takes vLLM's own check from the event loop."""

    def __init__(self, llm: AsyncLLM, *, cpu_seconds: int) -> None:
        self._processor = llm.input_processor
        self._vllm_config = llm.vllm_config
        self._model_config = llm.model_config
        self._config = llm.vllm_config.structured_outputs_config
        # vLLM skips the check without it, and reads it for nothing else.
        self._processor.structured_outputs_config = None
        self._cpu_seconds = cpu_seconds
        self._vocab_size = llm.model_config.get_vocab_size()
        self._trials = StructureTrials()

    async def start(self) -> None:
        await self._trials.start(await asyncio.to_thread(self._vocabulary))

    async def stop(self) -> None:
        await self._trials.stop()

    async def check(self, envelope: Envelope, params: SamplingParams) -> None:
        """Check what the parameters ask the answer to follow. Raises `RequestRefused`, or what
        vLLM raises where it is invalid."""
        if params.structured_outputs is None:
            return
        structure = _structure_of(params)
        verdict = None
        if structure is not None:
            verdict = await self._try(envelope, structure, params)
        await asyncio.to_thread(
            params._validate_structured_outputs,
            self._model_config,
            self._config,
            self._processor.tokenizer,
        )
        # vLLM only reads it and the engine would compile it, without any limit: so what has failed
        # here must not get there, whatever the reason.
        is_invalid = verdict is not None and verdict.finding is Finding.INVALID
        if is_invalid and params.structured_outputs._backend == XGRAMMAR:
            raise RequestRefused(_NOT_COMPILED)

    async def _try(
        self, envelope: Envelope, structure: Structure, params: SamplingParams
    ) -> Verdict:
        try:
            verdict = await self._trials.verdict(envelope.tenant_id, structure)
        except TrialsFailed:
            raise RequestRefused(_UNAVAILABLE) from None
        except OwnTrialsAhead as error:
            raise RequestRefused(_waiting(error.ahead)) from None
        if refusal := self._refusal(verdict, params):
            raise RequestRefused(refusal)
        return verdict

    def _refusal(self, verdict: Verdict, params: SamplingParams) -> WireError | None:
        slowest = max((walk.projected(params.max_tokens or 1) for walk in verdict.walks), default=0)
        match verdict.finding:
            case Finding.TOO_SLOW:
                what = f"takes more than {self._cpu_seconds} s to compile and try"
            case Finding.TOO_LARGE:
                what = f"takes more than {MEMORY_BYTES // 2**20} MiB of memory to compile"
            case _ if any(walk.is_slow for walk in verdict.walks):
                mean = 1000 * trial.WALK_SECONDS / trial.WALK_TOKENS
                what = f"takes more than {mean:.0f} ms a token to follow"
            case _ if (seconds := slowest * params.n) > MOST_STEP_SECONDS:
                what = (
                    f"takes {1000 * seconds:.0f} ms a token to follow, with n={params.n} and "
                    f"max_tokens={params.max_tokens}; {1000 * MOST_STEP_SECONDS:.0f} are allowed"
                )
            case _:
                return None
        return invalid_request(
            f"The schema, pattern or grammar that the answer has to follow {what}. Nothing was "
            "generated or charged. Make it simpler: fewer bounded strings, patterns, repetitions, "
            "and no rule that can be read in several ways.",
            code="structure_too_costly",
        )

    def _vocabulary(self) -> Vocabulary:
        backend = XgrammarBackend(
            self._vllm_config, tokenizer=self._processor.tokenizer, vocab_size=self._vocab_size
        )
        # How the backend describes a tokenizer, which differs by its kind, is in what it compiles.
        compiled = backend.compile_grammar(StructuredOutputOptions.JSON_OBJECT, "").ctx
        return Vocabulary(
            tokenizer=compiled.tokenizer_info.serialize_json(),
            any_whitespace=not self._config.disable_any_whitespace,
            cpu_seconds=self._cpu_seconds,
            memory_bytes=MEMORY_BYTES,
        )


def _waiting(ahead: int) -> WireError:
    """Return the refusal of a request that so many of its own tenant's were ahead of."""
    return WireError(
        status=429,
        message=(
            "A worker tries each schema, pattern or grammar that it does not know yet, one after "
            f"another. {ahead} of your own were ahead of this request's, and after "
            f"{MOST_OWN_SECONDS:g} s of them its turn had not come. Nothing was generated or "
            f"charged. Ask again in {_RETRY_SECONDS} s, and send fewer new ones at once: what has "
            "been tried is known from then on."
        ),
        type="rate_limit_error",
        code="structures_waiting",
        retry_after_seconds=_RETRY_SECONDS,
    )


def _structure_of(params: SamplingParams) -> Structure | None:
    """Return what the engine will compile; None where that is nothing of the client's own."""
    wanted: Any = params.structured_outputs
    if wanted.choice is not None:
        return Structure(StructureKind.GRAMMAR, choice_as_grammar(wanted.choice))
    if wanted.grammar is not None:
        is_lark = grammar_is_likely_lark(wanted.grammar)
        return Structure(StructureKind.LARK if is_lark else StructureKind.GRAMMAR, wanted.grammar)
    if wanted.json_object is not None:
        return None
    kind, text = get_structured_output_key(wanted)
    return Structure(StructureKind(kind.name.lower()), text)
