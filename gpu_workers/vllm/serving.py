"""vLLM's own serving objects around an engine held in process. Importing this takes seconds."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec
import vllm
from starlette.datastructures import State
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.generate.base.protocol import StreamOptions
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import VLLMValidationError
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.utils.gc_utils import freeze_gc_heap
from vllm.v1.executor import Executor

from gpu_workers.config import WorkerConfig
from gpu_workers.engine import Emit, EngineDescription, EngineDied, EngineLoad, Output, Result
from gpu_workers.protocol.messages import Api, Envelope, Outcome
from gpu_workers.vllm.arguments import command_line
from gpu_workers.vllm.client import CountingLLM, Generation
from gpu_workers.vllm.endpoints.chat_fast_path import PlainTextChat
from gpu_workers.vllm.errors import result_of_error, result_of_response
from gpu_workers.vllm.stats import StepStats

_FRAMING_BEFORE: Final = len("data: ")
_FRAMING_AFTER: Final = -len("\n\n")
SHUTDOWN_SECONDS: Final = 1.0  # nothing is open by then; what does not end is killed
_DONE: Final = "data: [DONE]\n\n"
_ERROR: Final = 'data: {"error"'

# What the engine may hold, times what it can run: dispatch gives it no more than that, and should
# dispatch be wrong, the engine says so instead of letting requests wait where nobody sees them.
_BACKSTOP: Final = 16

_PROBE_TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": {}}}


class VllmServing:
    """Answers envelopes with vLLM's chat and completion objects. Made by `load` in a thread, then
    `open`ed on the worker's event loop."""

    def __init__(self, llm: CountingLLM, arguments: Any, stats: list[StepStats]) -> None:
        self._llm = llm
        self._stats = stats  # of each engine, once it has started
        self._arguments = arguments
        self._state = State()
        self._slots: int = llm.vllm_config.scheduler_config.max_num_seqs
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode

    @classmethod
    def load(cls, config: WorkerConfig) -> "VllmServing":
        """Start the engine's processes and load the model. Blocks, for minutes with a large one."""
        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(command_line(config))
        engine_arguments = AsyncEngineArgs.from_cli_args(arguments)
        vllm_config = engine_arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
        _set_backstops(vllm_config)
        stats: list[StepStats] = []

        def make_stats(config: Any, engine_index: int = 0) -> StepStats:
            stats.append(StepStats(config, engine_index))
            return stats[-1]

        llm = CountingLLM(
            vllm_config=vllm_config,
            executor_class=Executor.get_class(vllm_config),
            log_stats=True,
            log_requests=False,
            usage_context=UsageContext.OPENAI_API_SERVER,
            stat_loggers=[make_stats],
        )
        llm.generations = {}
        # Their tracebacks repeat what a result says, and may quote a request.
        logging.getLogger("vllm.entrypoints.openai").setLevel(logging.CRITICAL)
        return cls(llm, arguments, stats)

    async def open(self) -> EngineDescription:
        """Make the serving objects, exactly as vLLM's own server does."""
        tasks = await self._llm.get_supported_tasks()
        if "generate" not in tasks:
            raise ValueError("this model does not generate text")
        await self._llm.reset_mm_cache()
        await init_app_state(self._llm, self._state, self._arguments, tasks)
        self._state.openai_serving_chat = PlainTextChat.over(self._state.openai_serving_chat)
        config = self._llm.vllm_config
        cache = config.cache_config
        description = EngineDescription(
            engine="vllm",
            version=vllm.__version__,
            slots=self._slots,
            context_tokens=config.model_config.max_model_len,
            kv_cache_tokens=(cache.num_gpu_blocks or 0) * cache.block_size,
            template_overhead_tokens=await self._template_overhead(),
            max_token_bytes=self._longest_token(),
            can_resume=not self._arguments.reasoning_parser and not self._has_own_penalty(),
        )
        # As vLLM's server does: a collection must not walk what will never be garbage.
        freeze_gc_heap()
        return description

    async def generate(
        self, envelope: Envelope, emit: Emit | None = None
    ) -> AsyncIterator[Output | Result]:
        """See `Engine.generate`."""
        generation = Generation(envelope, emit)
        self._llm.generations[envelope.request_id] = generation
        try:
            answer = await self._ask(generation)
            if isinstance(answer, AsyncGenerator):
                finish_reason = None
                tells_role = generation.has_one_choice and envelope.api is Api.CHAT_COMPLETIONS
                async for event in answer:
                    if event.startswith(_ERROR):
                        generation.error = generation.error or RuntimeError("error in the stream")
                    elif self._is_of_usage(event) and self._note_reasoning(generation, event):
                        continue
                    elif event != _DONE and not generation.is_aborted:
                        if "tool_calls" in event and '"finish_reason":"tool_calls"' in event:
                            finish_reason = "tool_calls"
                        yield Output(
                            chunks=[event[_FRAMING_BEFORE:_FRAMING_AFTER].encode()],
                            completion_tokens=0 if tells_role else generation.completion_tokens,
                            token_ids=[] if tells_role else generation.take_token_ids(),
                            prompt_tokens=generation.prompt_tokens
                            if generation.has_one_prompt
                            else 0,
                            cached_tokens=generation.cached_tokens
                            if generation.has_one_prompt
                            else 0,
                        )
                        tells_role = False
                result = _result_of_stream(generation, finish_reason)
            else:
                details = getattr(getattr(answer, "usage", None), "completion_tokens_details", None)
                generation.reasoning_tokens = details.reasoning_tokens if details else 0
                result = _result_of_answer(generation, answer)
        except EngineDied:
            raise
        except Exception as error:  # noqa: BLE001 - vLLM raises what its server turns into answers
            result = _result_of_exception(generation, error)
        finally:
            del self._llm.generations[envelope.request_id]
        yield result

    async def abort(self, request_id: str) -> None:
        generation = self._llm.generations.get(request_id)
        if generation is not None:
            await self._llm.abort_generation(generation)

    def load_now(self) -> EngineLoad:
        # No step tells of the end of the last request.
        stats = self._stats if self._llm.get_num_unfinished_requests() else []
        return EngineLoad(
            running=sum(each.running for each in stats),
            waiting=sum(each.waiting for each in stats),
            generated_tokens=sum(each.generated_tokens for each in self._stats),
        )

    def check_health(self) -> None:
        if self._llm.errored:
            raise EngineDied("vLLM's engine process has died")

    def shutdown(self) -> None:
        """End the engine's processes. Blocks."""
        self._llm.shutdown(timeout=SHUTDOWN_SECONDS)

    async def _ask(self, generation: Generation) -> Any:
        """A stream of events, an answer, or vLLM's error. The request is rebuilt under our id."""
        envelope = generation.envelope
        body = self._decode(envelope.body)
        body |= {
            "model": envelope.model,
            "stream": envelope.stream,
            "request_id": envelope.request_id,
            "cache_salt": envelope.cache_salt,
        }
        if envelope.api is Api.CHAT_COMPLETIONS:
            chat = ChatCompletionRequest.model_validate(body)
            generation.has_one_choice = chat.n in (None, 1)
            self._check_sequences(chat.n or 1)
            asks = bool(chat.stream_options and chat.stream_options.include_usage)
            if chat.stream and self._arguments.reasoning_parser and not asks:
                generation.tells_usage = False
                chat.stream_options = StreamOptions(include_usage=True)
            return await self._state.openai_serving_chat.create_chat_completion(chat)
        completion = CompletionRequest.model_validate(body)
        generation.has_one_prompt = not _is_batch(completion.prompt)
        generation.has_one_choice = completion.n in (None, 1) and generation.has_one_prompt
        prompts = 1 if generation.has_one_prompt else len(completion.prompt)
        self._check_sequences((completion.n or 1) * prompts)
        return await self._state.openai_serving_completion.create_completion(completion)

    def _check_sequences(self, sequences: int) -> None:
        most = self._llm.vllm_config.scheduler_config.max_num_queued_reqs
        if sequences > most:
            raise VLLMValidationError(
                f"n must be at most {most} over all prompts: this engine holds no more at once.",
                parameter="n",
                value=sequences,
            )

    def _is_of_usage(self, event: str) -> bool:
        """The last event of a stream, from which reasoning is known. Each token would pay for this,
        so only where there is any."""
        return bool(self._arguments.reasoning_parser) and '"choices":[]' in event

    def _note_reasoning(self, generation: Generation, event: str) -> bool:
        """Whether that is all that the event was for, as its client did not ask for it."""
        usage = self._decode(event[_FRAMING_BEFORE:].encode()).get("usage") or {}
        details = usage.get("completion_tokens_details") or {}
        generation.reasoning_tokens = details.get("reasoning_tokens") or 0
        return not generation.tells_usage

    async def _template_overhead(self) -> int:
        """Tokens that the chat template adds to one message, measured; tools add their part. Not
        less than what a text alone may gain: special tokens, and one for how it begins."""
        overheads = [len(self._llm.renderer.get_tokenizer().encode("x"))]
        for options in ({}, {"tools": [_PROBE_TOOL]}):
            try:
                overheads.append(await self._rendered_length(options) - 1)
            except Exception:  # noqa: BLE001 - a base model has no template, or none for tools
                break
        return max(overheads)

    async def _rendered_length(self, options: dict[str, Any]) -> int:
        message = {"role": "user", "content": "x"}
        request = ChatCompletionRequest.model_validate({"messages": [message], **options})
        rendered = await self._state.online_renderer.render_chat(request)
        if isinstance(rendered, ErrorResponse):
            raise ValueError(rendered.error.message)
        _, (engine_input,) = rendered
        return len(engine_input["prompt_token_ids"])

    def _has_own_penalty(self) -> bool:
        """Whether the model's own configuration has tokens depend on which were output before."""
        defaults = self._llm.vllm_config.model_config.get_diff_sampling_param()
        return bool(defaults.get("repetition_penalty", 1.0) != 1.0)

    def _longest_token(self) -> int:
        """In bytes, an upper bound: byte-level vocabularies spell some bytes with two."""
        vocabulary = self._llm.renderer.get_tokenizer().get_vocab()
        return max(len(token.encode()) for token in vocabulary)


def _set_backstops(vllm_config: Any) -> None:
    scheduler, context = vllm_config.scheduler_config, vllm_config.model_config.max_model_len
    scheduler.max_num_queued_reqs = _BACKSTOP * scheduler.max_num_seqs
    scheduler.max_num_queued_tokens = _BACKSTOP * scheduler.max_num_seqs * context


def _is_batch(prompt: Any) -> bool:
    """Several prompts in one request; a single list of token ids is one prompt."""
    return isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)


def _result_of_stream(generation: Generation, finish_reason: str | None) -> Result:
    if generation.error is not None:
        return result_of_error(generation.error, generation.usage())
    if _was_cut_short(generation):
        return _cancelled(generation)
    return _completed(generation, finish_reason or generation.finish_reason, None)


def _result_of_answer(generation: Generation, answer: Any) -> Result:
    if _was_cut_short(generation):
        return _cancelled(generation)
    if isinstance(answer, ErrorResponse):
        return result_of_response(answer.error, generation.usage())
    body = answer.model_dump_json().encode()
    return _completed(generation, answer.choices[0].finish_reason, body)


def _result_of_exception(generation: Generation, error: Exception) -> Result:
    if generation.is_aborted and generation.error is None:
        return _cancelled(generation)
    return result_of_error(generation.error or error, generation.usage())


def _was_cut_short(generation: Generation) -> bool:
    return generation.is_aborted and generation.finish_reason in (None, "abort")


def _cancelled(generation: Generation) -> Result:
    return Result(
        outcome=Outcome.CANCELLED,
        usage=generation.usage(),
        first_token_at_ms=generation.first_token_at_ms,
        token_ids=[] if generation.envelope.stream else generation.take_token_ids(),
    )


def _completed(generation: Generation, finish_reason: str | None, body: bytes | None) -> Result:
    return Result(
        outcome=Outcome.COMPLETED,
        usage=generation.usage(),
        finish_reason=finish_reason,
        body=body,
        first_token_at_ms=generation.first_token_at_ms,
    )
