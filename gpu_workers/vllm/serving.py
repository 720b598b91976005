"""vLLM's own serving objects around an engine held in process. Importing this takes seconds."""

import asyncio
import importlib.util
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import vllm
import vllm.envs
from starlette.datastructures import State
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.exceptions import VLLMValidationError
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.executor import Executor

from gpu_workers.config import WorkerConfig
from gpu_workers.engine import (
    ADAPTER_NOT_LOADED,
    BeginTexts,
    EngineDescription,
    EngineDied,
    EngineLoad,
    EngineStats,
    Output,
    Result,
)
from gpu_workers.protocol.messages import Api, Envelope, Outcome, TokenUsage
from gpu_workers.requests.render_turns import RenderTurns
from gpu_workers.requests.response_model import response_model
from gpu_workers.vllm import cpu_host
from gpu_workers.vllm.adapters.answered_name import answering_as, name_answers
from gpu_workers.vllm.adapters.effect import EffectProbe
from gpu_workers.vllm.adapters.loaded import LoadedAdapters, base_of
from gpu_workers.vllm.arguments import command_line
from gpu_workers.vllm.client import CAN_RESUME, CountingLLM
from gpu_workers.vllm.endpoints.endpoint import Endpoint
from gpu_workers.vllm.endpoints.registry import ENDPOINTS
from gpu_workers.vllm.errors import in_clients_terms
from gpu_workers.vllm.generation import Generation
from gpu_workers.vllm.parts import Part
from gpu_workers.vllm.prompt_guard import guard_prompts
from gpu_workers.vllm.results import result_of_answer, result_of_exception, result_of_stream
from gpu_workers.vllm.stats import StepStats, engine_stats
from gpu_workers.vllm.structures.gate import StructureGate
from gpu_workers.vllm.structures.step_guard import StepGuard

SHUTDOWN_SECONDS: Final = 1.0  # nothing is open by then; what does not end is killed
_DONE: Final = "data: [DONE]\n\n"
_ERROR: Final = 'data: {"error"'

# What the engine may hold, times what it can run: dispatch gives it no more than that, and should
# dispatch be wrong, the engine says so instead of letting requests wait where nobody sees them.
_BACKSTOP: Final = 16


class VllmServing:
    """Answers envelopes with vLLM's own serving objects. Made by `load` in a thread, then `open`ed
    on the worker's event loop."""

    def __init__(
        self,
        llm: CountingLLM,
        arguments: Any,
        stats: list[StepStats],
        *,
        model: str,
        structure_seconds: int,
    ) -> None:
        self.model = model
        # What is served without, as this vLLM is another one
        self.degraded: frozenset[Part] = frozenset()
        # None for an engine without adapters, and for one that mixes them up
        self.adapters: LoadedAdapters | None = None
        self._llm = llm
        llm.structures = StructureGate(llm, cpu_seconds=structure_seconds)
        self._stats = stats  # of each engine, once it has started
        self._arguments = arguments
        self._turns = RenderTurns()
        self._endpoints: dict[Api, Endpoint] = {}
        self._slots: int = llm.vllm_config.scheduler_config.max_num_seqs
        self._generated_tokens = 0  # as results report them
        self._own_tokens = 0  # of these, what the worker itself asked for
        self._own_running = 0  # requests of the worker's own beside everybody's
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode

    @classmethod
    def load(cls, config: WorkerConfig) -> "VllmServing":
        """Start the engine's processes and load the model. Blocks, for minutes with a large one."""
        arguments = _make_arg_parser()(FlexibleArgumentParser()).parse_args(command_line(config))
        engine_arguments = AsyncEngineArgs.from_cli_args(arguments)
        vllm_config = engine_arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
        _set_backstops(vllm_config)
        stats: list[StepStats] = []

        guard = StepGuard(most_seconds=config.structure_step_ms / 1000)

        def make_stats(vllm_config: Any, engine_index: int = 0) -> StepStats:
            stats.append(StepStats(vllm_config, guard))
            return stats[-1]

        with cpu_host.arranged(vllm_config):
            llm = CountingLLM(
                vllm_config=vllm_config,
                executor_class=Executor.get_class(vllm_config),
                log_stats=True,
                log_requests=False,
                usage_context=UsageContext.OPENAI_API_SERVER,
                stat_loggers=[make_stats],
            )
        llm.generations = {}
        llm.guard = guard
        # Their tracebacks repeat what a result says, and may quote a request.
        logging.getLogger("vllm.entrypoints.openai").setLevel(logging.CRITICAL)
        return cls(
            llm, arguments, stats, model=config.model, structure_seconds=config.structure_seconds
        )

    @property
    def context_tokens(self) -> int:
        """Return the model's context, prompt and answer together."""
        context: int = self._llm.vllm_config.model_config.max_model_len
        return context

    async def open(self) -> EngineDescription:
        """Make the serving objects, exactly as vLLM's own server does. Raises `ValueError` if the
        model does not generate text."""
        tasks = await self._llm.get_supported_tasks()
        if "generate" not in tasks:
            raise ValueError("this model does not generate text")
        await self._llm.reset_mm_cache()
        await self._llm.structures.start()
        guard_prompts(self._llm.renderer)
        state = State()
        await init_app_state(self._llm, state, self._arguments, tasks)
        _cache_environment()
        name_answers(state.openai_serving_models)
        if self.adapters is None and (lora := self._llm.vllm_config.lora_config) is not None:
            base = await base_of(self._llm, model=self.model, max_rank=lora.max_lora_rank)
            self.adapters = LoadedAdapters(
                self._llm,
                base,
                slots=lora.max_loras,
                in_memory=lora.max_cpu_loras,
                probe=EffectProbe(self._llm, self.own_generation, model=self.model),
            )
        self._endpoints = {api: endpoint(state) for api, endpoint in ENDPOINTS.items()}
        config = self._llm.vllm_config
        cache = config.cache_config
        return EngineDescription(
            engine="vllm",
            version=vllm.__version__,
            slots=self._slots,
            context_tokens=self.context_tokens,
            kv_cache_tokens=(cache.num_gpu_blocks or 0) * cache.block_size,
            template_overhead_tokens=max(
                [await endpoint.prompt_overhead() for endpoint in self._endpoints.values()]
            ),
            max_token_bytes=self._longest_token(),
            can_resume=not self._arguments.reasoning_parser and not self._has_own_penalty(),
            gpus=config.parallel_config.world_size if current_platform.is_cuda() else 0,
        )

    async def generate(
        self,
        envelope: Envelope,
        begin_texts: BeginTexts | None = None,
        *,
        without: frozenset[Part] = frozenset(),
    ) -> AsyncIterator[Output | Result]:
        """Generate as `Engine.generate` says, relying on none of the parts in `without`. Raises
        `EngineDied` if the engine has died."""
        generation = Generation(envelope, begin_texts, without | self.degraded)
        if envelope.adapter:
            generation.lora_request = self.adapters and self.adapters.request_of(envelope.adapter)
            if generation.lora_request is None:
                yield Result(outcome=Outcome.FAILED, usage=TokenUsage(), error=ADAPTER_NOT_LOADED)
                return
        self._llm.generations[envelope.request_id] = generation
        try:
            endpoint = self._endpoints[envelope.api]
            generation.begin_rendering(await self._turns.begin(envelope.tenant_id))
            answer = await self._ask(endpoint, generation)
            if _is_asked_to_end():
                # vLLM has answered that its client left
                generation.is_aborted = True
            if isinstance(answer, AsyncGenerator):
                is_role_event = generation.has_one_choice and endpoint.begins_with_role
                async for event in answer:
                    if event.startswith(_ERROR):
                        if generation.ended_for is None:
                            generation.error = generation.error or RuntimeError("in the stream")
                        continue
                    if event == _DONE:
                        continue
                    chunk = endpoint.render_event(generation, event)
                    if chunk is None or generation.is_aborted:
                        continue
                    yield Output(
                        chunks=[chunk],
                        completion_tokens=0 if is_role_event else generation.completion_tokens,
                        token_ids=[] if is_role_event else generation.take_token_ids(),
                        prompt_tokens=generation.prompt_tokens if generation.has_one_prompt else 0,
                        cached_tokens=generation.cached_tokens if generation.has_one_prompt else 0,
                    )
                    is_role_event = False
                await self._llm.end_generation(generation)
                result = result_of_stream(generation)
            else:
                await self._llm.end_generation(generation)
                result = await result_of_answer(endpoint, generation, answer)
        except EngineDied:
            raise
        except Exception as error:  # noqa: BLE001 - vLLM raises what its server turns into answers
            await self._llm.end_generation(generation)
            result = result_of_exception(generation, error)
        finally:
            generation.end_rendering()  # where it was refused before there was a prompt
            del self._llm.generations[envelope.request_id]
            self._llm.guard.ends(envelope.request_id)
            self._generated_tokens += generation.generated_tokens
        yield in_clients_terms(result, envelope.api)

    async def abort(self, request_id: str) -> None:
        generation = self._llm.generations.get(request_id)
        if generation is not None:
            await self._llm.abort_generation(generation)

    def load_now(self) -> EngineLoad:
        held = self._llm.get_num_unfinished_requests()
        loading = 0.0 if self.adapters is None else self.adapters.loading_seconds
        if Part.STEP_STATS in self.degraded:
            counted = self._generated_tokens - self._own_tokens
            return EngineLoad(
                running=held, waiting=0, generated_tokens=counted, loading_seconds=loading
            )
        stats = self._stats if held else []  # no step reports the end of the last request
        return EngineLoad(
            # While one of ours is open the count is not whole: whoever compares it waits for that.
            running=max(sum(each.running for each in stats), self._own_running),
            waiting=sum(each.waiting for each in stats),
            generated_tokens=max(
                0, sum(each.generated_tokens for each in self._stats) - self._own_tokens
            ),
            held=held,
            steps=sum(each.steps for each in self._stats),
            loading_seconds=loading,
        )

    def stats_now(self) -> EngineStats:
        if Part.STEP_STATS in self.degraded:
            return EngineStats()
        config = self._llm.vllm_config
        return engine_stats(
            self._stats,
            has_prefix_cache=bool(config.cache_config.enable_prefix_caching),
            drafts=config.speculative_config is not None,
            is_idle=not self._llm.get_num_unfinished_requests(),
        )

    def check_health(self) -> None:
        """Check that the engine process lives. Raises `EngineDied` if it does not."""
        if self._llm.errored:
            raise EngineDied("vLLM's engine process has died")

    async def close(self) -> None:
        """End what runs beside the engine; `shutdown` comes after it."""
        await self._llm.structures.stop()

    @contextmanager
    def probe_requests(self) -> Iterator[None]:
        """Leave out of the engine's count what is generated meanwhile: nobody else asks."""
        before = self._generated_tokens
        try:
            yield
        finally:
            self._own_tokens += self._generated_tokens - before

    @contextmanager
    def own_generation(self, envelope: Envelope, lora_request: Any) -> Iterator[Generation]:
        """Count a request of the worker's own, beside those of others, apart from theirs."""
        generation = Generation(envelope)
        generation.lora_request = lora_request
        self._llm.generations[envelope.request_id] = generation
        self._own_running += 1
        try:
            yield generation
        finally:
            del self._llm.generations[envelope.request_id]
            self._own_running -= 1
            self._generated_tokens += generation.generated_tokens
            self._own_tokens += generation.generated_tokens

    def serve_without(self, parts: frozenset[Part]) -> None:
        """Rely on these parts of vLLM no more."""
        self.degraded = parts
        self._llm.resumes = Part.RESUMPTION not in parts
        if Part.ADAPTERS in parts:
            self.adapters = None

    def missing(self) -> frozenset[Part]:
        """Return the parts that this vLLM has not even by name."""
        endpoints = self._endpoints.values()
        parts = {each.fast_path_part for each in endpoints if each.fast_path is None}
        return frozenset(parts if CAN_RESUME else parts | {Part.RESUMPTION})

    def close_queue(self) -> Callable[[], None]:
        """Have vLLM take no request by its own limits; return what opens it again."""
        scheduler = self._llm.vllm_config.scheduler_config
        most = scheduler.max_num_queued_reqs
        scheduler.max_num_queued_reqs = 0

        def reopen() -> None:
            scheduler.max_num_queued_reqs = most

        return reopen

    def shutdown(self) -> None:
        """End the engine's processes. Blocks."""
        self._llm.shutdown(timeout=SHUTDOWN_SECONDS)

    async def _ask(self, endpoint: Endpoint, generation: Generation) -> Any:
        """Ask vLLM under our request id; return a stream of events, an answer or vLLM's error."""
        envelope = generation.envelope
        body = self._decode(envelope.body)
        name = response_model(envelope, body.get("model", ""))
        body |= {
            "model": envelope.model,
            "stream": envelope.stream,
            "request_id": envelope.request_id,
            "cache_salt": envelope.cache_salt,
        }
        request = endpoint.parse(body)
        generation.has_one_prompt = request.prompts == 1
        generation.choices = request.sequences
        generation.hides_usage = request.hides_usage
        self._check_sequences(request.sequences)
        with answering_as(name):
            return await endpoint.ask(request.vllm_request)

    def _check_sequences(self, sequences: int) -> None:
        most = _BACKSTOP * self._slots
        if sequences > most:
            raise VLLMValidationError(
                f"n must be at most {most} over all prompts: this engine holds no more at once.",
                parameter="n",
                value=sequences,
            )

    def _has_own_penalty(self) -> bool:
        """Tell whether the model's own configuration penalises tokens by earlier output."""
        defaults = self._llm.vllm_config.model_config.get_diff_sampling_param()
        return bool(defaults.get("repetition_penalty", 1.0) != 1.0)

    def _longest_token(self) -> int:
        """Return an upper bound on a token's bytes: byte-level vocabularies double some."""
        vocabulary = self._llm.renderer.get_tokenizer().get_vocab()
        return max(len(token.encode()) for token in vocabulary)


def _cache_environment() -> None:
    """Have vLLM remember its settings, as its engine's own process does: else it reads one from the
    environment for every token. A vLLM without this goes on reading."""
    remember = getattr(vllm.envs, "enable_envs_cache", None)
    if remember is not None:
        remember()


def _make_arg_parser() -> Callable[[FlexibleArgumentParser], FlexibleArgumentParser]:
    """Return vLLM's maker of its server's argument parser, wherever it stands."""
    for place in ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.common.cli_args"):
        if importlib.util.find_spec(place) is not None:
            make: Callable[..., Any] = importlib.import_module(place).make_arg_parser
            return make
    raise ImportError("this vLLM has no make_arg_parser where 0.32 and 0.33 have it")


def _set_backstops(vllm_config: Any) -> None:
    """Bound what waits in the engine. A vLLM without these limits is found by its probe."""
    scheduler, context = vllm_config.scheduler_config, vllm_config.model_config.max_model_len
    scheduler.max_num_queued_reqs = _BACKSTOP * scheduler.max_num_seqs
    scheduler.max_num_queued_tokens = _BACKSTOP * scheduler.max_num_seqs * context


def _is_asked_to_end() -> bool:
    """Tell whether the running task was cancelled, if vLLM has caught that."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
