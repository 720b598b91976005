"""Resuming a request after output that earlier attempts have generated.

vLLM is given prompt and output as one prompt and bounds that are smaller by as much. Its output
processor keeps the request as it was asked for and is handed the output as if the engine had just
made it: so text, stop conditions and usage are vLLM's own, and no character is cut in two.
"""

from dataclasses import dataclass

import msgspec
from vllm.outputs import RequestOutput
from vllm.v1.core.sched.utils import check_stop
from vllm.v1.engine import EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.request import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumption:
    """`replay` is the first output, None where only the last one is wanted; `rest` what the engine
    still has to do, None if that is nothing: then `replay` is the last output too."""

    replay: RequestOutput | None
    rest: EngineCoreRequest | None


def resume(
    processor: OutputProcessor, request: EngineCoreRequest, token_ids: list[int], context: int
) -> Resumption:
    """Replay `token_ids` to the state that `processor` has of `request`. `context` is the
    model's, in tokens."""
    state = processor.request_states[request.request_id]
    reason, stop_reason = _end_of(request, token_ids, context)
    state.detokenizer.update(token_ids, reason is FinishReason.STOP)
    replay = state.make_request_output(list(token_ids), None, reason, stop_reason)
    if reason is None:
        return Resumption(replay=replay, rest=_rest_of(request, token_ids))
    processor._finish_request(state)
    return Resumption(replay=replay, rest=None)


def _end_of(
    request: EngineCoreRequest, token_ids: list[int], context: int
) -> tuple[FinishReason | None, int | str | None]:
    """Return finish and stop reason if the last of these tokens ended the request by vLLM's own
    rules, else None for both."""
    done = Request.from_engine_core_request(request, None)
    done.append_output_token_ids(token_ids)
    if not check_stop(done, context):
        return None, None
    return done.get_finished_reason(), done.stop_reason


def _rest_of(request: EngineCoreRequest, token_ids: list[int]) -> EngineCoreRequest:
    params = request.sampling_params.clone()
    params.max_tokens -= len(token_ids)
    params.min_tokens = max(0, params.min_tokens - len(token_ids))
    prompt = [*request.prompt_token_ids, *token_ids]
    rest: EngineCoreRequest = msgspec.structs.replace(
        request, prompt_token_ids=prompt, sampling_params=params
    )
    return rest
