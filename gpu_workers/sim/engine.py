"""The simulated engine: product code that speaks OpenAI's JSON without a model or a GPU.

It decodes like vLLM does: in steps, one token for each running sequence, at most `slots`
sequences in a batch, of at most `adapters.slots` LoRA adapters, the rest waiting in order of
priority. Text is a function of prompt and adapter alone, so that a test or a drill can distinguish
answers and repeat them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.config import WorkerConfig
from gpu_workers.engine import (
    ADAPTER_NOT_LOADED,
    BeginTexts,
    EngineDescription,
    EngineDied,
    EngineLoad,
    EngineStats,
    LoadableAdapter,
    Output,
    Result,
)
from gpu_workers.figures.steps import RecentSteps
from gpu_workers.protocol.adapters import AdapterEffect
from gpu_workers.protocol.messages import Envelope, Outcome, TokenUsage
from gpu_workers.sim.adapters import SimAdapters
from gpu_workers.sim.answer import SimAnswer, plan_answer
from gpu_workers.sim.faults import SimFaults
from gpu_workers.sim.model import MAX_TOKEN_BYTES
from gpu_workers.sim.refusal import SimRefusal

Sleep = Callable[[float], Awaitable[None]]

TEMPLATE_OVERHEAD_TOKENS = 8


class SimEngine:
    """`sleep` is injectable: tests step the engine without waiting."""

    def __init__(
        self,
        *,
        slots: int = 64,
        step_seconds: float = 0.02,
        tokens_per_second: float = 0.0,
        context_tokens: int = 2048,
        sleep: Sleep = asyncio.sleep,
        faults: SimFaults | None = None,
        adapter_slots: int = 0,
        adapters_in_memory: int = 0,
        adapter_max_rank: int = 16,
        adapter_load_seconds: float = 0.0,
        model: str = "sim",
    ) -> None:
        self._slots = slots
        self._step_seconds = step_seconds
        self._tokens_per_second = tokens_per_second
        self._context_tokens = context_tokens
        self._sleep = sleep
        self._faults = faults or SimFaults()
        self._adapters = SimAdapters(
            slots=adapter_slots,
            in_memory=adapters_in_memory,
            model=model,
            max_rank=adapter_max_rank,
            load_seconds=adapter_load_seconds,
            sleep=sleep,
        )
        self._steps = 0
        self._recent_steps = RecentSteps(most_sequences=slots)
        self._answers: dict[str, SimAnswer] = {}
        self._wake = asyncio.Event()
        self._stepper: asyncio.Task[None] | None = None
        self._failure: EngineDied | None = None
        self._generated_tokens = 0

    @classmethod
    def from_config(cls, config: WorkerConfig) -> "SimEngine":
        return cls(
            slots=config.slots or config.max_num_seqs,
            step_seconds=config.sim_step_ms / 1000,
            tokens_per_second=config.sim_tokens_per_second,
            context_tokens=config.sim_context_tokens,
            faults=SimFaults(
                hang_after_steps=config.sim_hang_after_steps,
                block_after_steps=config.sim_block_after_steps,
                block_seconds=config.sim_block_seconds,
            ),
            adapter_slots=config.adapter_slots,
            adapters_in_memory=config.adapters_in_memory or config.adapter_slots,
            adapter_max_rank=config.adapter_max_rank,
            adapter_load_seconds=config.sim_adapter_load_ms / 1000,
            model=config.model,
        )

    async def start(self) -> EngineDescription:
        self._stepper = asyncio.create_task(self._step_forever(), name="sim-engine")
        return EngineDescription(
            engine="sim",
            version="1",
            slots=self._slots,
            context_tokens=self._context_tokens,
            kv_cache_tokens=self._slots * self._context_tokens,
            template_overhead_tokens=TEMPLATE_OVERHEAD_TOKENS,
            max_token_bytes=MAX_TOKEN_BYTES,
            adapter_slots=self._adapters.slots,
            adapters_in_memory=self._adapters.in_memory,
            adapter_base=self._adapters.base,
        )

    async def warm_up(self) -> None:
        """Do nothing: its first token takes as long as any other."""

    async def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        """Generate as `Engine.generate` says. Raises `EngineDied` once the engine has failed."""
        await self.check_health()
        voice = self._adapters.voice(envelope.adapter) if envelope.adapter else b""
        if voice is None:
            yield Result(outcome=Outcome.FAILED, usage=TokenUsage(), error=ADAPTER_NOT_LOADED)
            return
        try:
            answer = plan_answer(envelope, self._context_tokens, TEMPLATE_OVERHEAD_TOKENS, voice)
        except SimRefusal as refusal:
            yield Result(outcome=Outcome.REFUSED, usage=TokenUsage(), error=refusal.error)
            return
        self._answers[envelope.request_id] = answer
        self._wake.set()
        try:
            async for output in self._outputs(answer):
                yield output
        finally:
            self._forget(envelope.request_id)
        yield answer.result()

    async def abort(self, request_id: str) -> None:
        answer = self._answers.get(request_id)
        if answer is not None:
            answer.cancel()
            self._forget(request_id)

    async def load_adapter(self, adapter: LoadableAdapter) -> None:
        await self.check_health()
        await self._adapters.load(adapter)

    async def probe_adapter(self, name: str) -> AdapterEffect:
        await self.check_health()
        await self._sleep(self._step_duration())
        return await self._adapters.probe(name)

    async def unload_adapter(self, name: str) -> None:
        await self.check_health()
        self._adapters.unload(name)

    def load(self) -> EngineLoad:
        return EngineLoad(
            running=self._running_sequences(),
            waiting=sum(answer.waiting_sequences for answer in self._answers.values()),
            generated_tokens=self._generated_tokens,
            held=len(self._answers),
            steps=self._steps,
        )

    def stats(self) -> EngineStats:
        """Return what this engine has of vLLM's: it has no prefix cache and drafts nothing."""
        held = sum(answer.kv_tokens for answer in self._answers.values())
        return EngineStats(
            kv_used=min(1.0, held / (self._slots * self._context_tokens)),
            batch_used=self._recent_steps.batch_used,
            step_us=self._recent_steps.median_us,
            preemptions=0,
        )

    async def check_health(self) -> None:
        if self._failure is not None:
            raise self._failure

    def fail(self, reason: str) -> None:
        """Die as vLLM does when its engine process is killed; for drills and tests."""
        self._failure = EngineDied(reason)
        for answer in self._answers.values():
            answer.changed.set()

    async def stop(self) -> None:
        if self._stepper is not None:
            await cancel_and_wait([self._stepper])
            self._stepper = None

    async def _outputs(self, answer: SimAnswer) -> AsyncIterator[Output]:
        while True:
            while answer.streams and (output := answer.take_output()) is not None:
                yield output
            if answer.is_ended:
                return
            await answer.changed.wait()
            answer.changed.clear()
            if self._failure is not None:
                raise EngineDied(str(self._failure), answer.usage())

    async def _step_forever(self) -> None:
        while True:
            self._admit()
            if not self._running_sequences():
                self._wake.clear()
                await self._wake.wait()
                continue
            self._recent_steps.begins()
            sequences_in_step = self._running_sequences()
            await self._sleep(self._step_duration())
            self._recent_steps.ends(sequences_in_step)
            now_ns = time.monotonic_ns()
            for request_id, answer in list(self._answers.items()):
                if not (sequences := answer.running_sequences):
                    continue
                self._generated_tokens += sequences
                answer.step(now_ns)
                if answer.is_ended:
                    self._forget(request_id)
            self._steps += 1
            await self._faults.strike(self._steps)

    def _admit(self) -> None:
        free = self._slots - self._running_sequences()
        answers = self._answers.values()
        in_slots = {each.adapter for each in answers if each.adapter and each.running_sequences}
        waiting = [answer for answer in answers if answer.waiting_sequences]
        for answer in sorted(waiting, key=lambda each: each.priority):
            if answer.adapter and answer.adapter not in in_slots:
                if not free or len(in_slots) >= self._adapters.slots:
                    continue
                in_slots.add(answer.adapter)
            free -= answer.admit(free)

    def _running_sequences(self) -> int:
        return sum(answer.running_sequences for answer in self._answers.values())

    def _step_duration(self) -> float:
        if not self._tokens_per_second:
            return self._step_seconds
        return max(self._step_seconds, self._running_sequences() / self._tokens_per_second)

    def _forget(self, request_id: str) -> None:
        self._answers.pop(request_id, None)
