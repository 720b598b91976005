"""A discrete model of a batching engine: who is in the batch, and how long a step takes.

    step = fixed + per_sequence * decoding + per_prompt_token * prefilled + per_kv_token * resident

A step has room for `batched_tokens`: one of each sequence that decodes, then prompts in chunks, in
order of arrival. A sequence's first token comes with the step that ends its prefill. A sequence is
let in when there is a slot and its prompt and output fit the KV cache in whole blocks, else it and
those behind it wait inside the engine; one whose adapter has no slot lets others by, as in vLLM.
What a load of one costs stands in `loads`. The sequences of one request share the whole blocks of
their prompt: the first prefills them.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

from tests.benchmarks.fairness.loads import LoadModel, Loads


@dataclass(frozen=True, kw_only=True)
class EngineModel:
    """Milliseconds and tokens. The default is fitted by `calibrate` to the demo model on vLLM 0.32,
    in float32 on one core: a step is off by 9 % in the median of the fitted workload, by 14 % of
    another one, whose run takes 5 % longer in the model."""

    fixed_ms: float = 5.63
    per_sequence_ms: float = 0.273
    per_prompt_token_ms: float = 0.144
    per_kv_token_ms: float = 0.00065
    slots: int = 64
    block_tokens: int = 128
    kv_blocks: int = 2_048
    batched_tokens: int = 2_048
    adapter_slots: int = 4
    loads: LoadModel = field(default_factory=LoadModel)

    def prefilled_by(self, sequence: "Sequence") -> int:
        """The tokens of the prompt that the sequence does not share with an earlier one."""
        prompt = sequence.request.prompt
        return prompt if sequence.is_first else 1 + (prompt - 1) % self.block_tokens

    def blocks(self, sequence: "Sequence") -> int:
        tokens = self.prefilled_by(sequence) + sequence.request.output
        return math.ceil(tokens / self.block_tokens)

    @property
    def kv_tokens(self) -> int:
        return self.kv_blocks * self.block_tokens

    def requests_per_second(self, prompt: int, output: int) -> float:
        """What full slots serve of requests of one size."""
        kv = self.slots * (prompt + output / 2)
        step_ms = self.fixed_ms + self.per_sequence_ms * self.slots + self.per_kv_token_ms * kv
        return 1000 / (output * step_ms / self.slots + self.per_prompt_token_ms * prompt)


@dataclass(slots=True, eq=False)
class Request:
    """One request through its life; times in milliseconds since the start of a run. `output` is
    that of each of its sequences."""

    number: int
    tenant: str
    arrived_ms: float
    prompt: int
    output: int
    key: str = "key"
    adapter: str = ""
    sequences: int = 1
    is_refused: bool = False
    started_ms: float = -1.0
    first_token_ms: float = -1.0
    ended_ms: float = -1.0
    to_end: int = 0
    first_steps: list[int] = field(default_factory=list)

    @property
    def ttft_ms(self) -> float:
        return self.first_token_ms - self.arrived_ms

    def decoded(self, step: int) -> int:
        """Output tokens after this step."""
        return sum(min(self.output, step - first + 1) for first in self.first_steps)


@dataclass(slots=True, eq=False)
class Sequence:
    """One of a request's outputs."""

    request: Request
    number: int
    to_prefill: int = 0

    @property
    def is_first(self) -> bool:
        return self.number == 0


@dataclass(slots=True)
class Step:
    """What one step did: what it prefilled and who ended with it."""

    duration_ms: float
    prefilled: list[tuple[Sequence, int]]
    decoding: dict[str, int]
    held: dict[str, int]
    ended: list[Request] = field(default_factory=list)


class Engine:
    """Runs steps; each is as long as what it does."""

    def __init__(self, model: EngineModel) -> None:
        self.model = model
        self.step_number = 0
        self.held: dict[int, Request] = {}
        self._waiting: deque[Sequence] = deque()
        self._prefilling: deque[Sequence] = deque()
        self._ends: list[tuple[int, int, int, Sequence]] = []
        self._in_batch = 0
        self._decoding: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._blocks_reserved = 0
        self._adapters: dict[str, int] = {}
        self._kv_resident = 0
        self.loads = Loads(model.loads, model.adapter_slots)
        self.step_ms = 0.0  # the last one, without loads

    @property
    def free_slots(self) -> int:
        """Below zero where sequences of wide requests wait for one."""
        return self.model.slots - sum(self._held.values())

    def add(self, request: Request, now_ms: float) -> None:
        request.started_ms = now_ms
        request.to_end = request.sequences
        self.held[request.number] = request
        self._held[request.tenant] = self._held.get(request.tenant, 0) + request.sequences
        self._waiting += [Sequence(request, number) for number in range(request.sequences)]
        self.loads.get(request.adapter, now_ms)
        self._let_in(now_ms)

    def stand_idle(self, now_ms: float) -> None:
        """Take in what is loaded ahead of requests, while there are none."""
        self.loads.arrive(now_ms, self._adapters)

    def step(self, now_ms: float) -> Step:
        """One step from `now_ms` on."""
        model = self.model
        self._let_in(now_ms)
        decoding = dict(self._decoding)
        sequences = sum(decoding.values())
        prefilled: list[tuple[Sequence, int]] = []
        budget = room = max(0, model.batched_tokens - sequences)
        while self._prefilling and budget:
            sequence = self._prefilling[0]
            chunk = min(budget, sequence.to_prefill)
            sequence.to_prefill -= chunk
            budget -= chunk
            prefilled.append((sequence, chunk))
            if sequence.to_prefill:
                break
            self._prefilling.popleft()
        self.step_ms = (
            model.fixed_ms
            + model.per_sequence_ms * sequences
            + model.per_prompt_token_ms * (room - budget)
            + model.per_kv_token_ms * self._kv_resident
        )
        duration = self.step_ms + self.loads.take_stall_ms()
        self._kv_resident += sequences + room - budget
        self.step_number += 1
        done = Step(
            duration_ms=duration, prefilled=prefilled, decoding=decoding, held=dict(self._held)
        )
        for sequence, _ in prefilled:
            if not sequence.to_prefill:
                self._begin_decoding(sequence, now_ms + duration)
        while self._ends and self._ends[0][0] <= self.step_number:
            self._end(heapq.heappop(self._ends)[-1], now_ms + duration, done)
        self._let_in(now_ms + duration)
        return done

    def _begin_decoding(self, sequence: Sequence, now_ms: float) -> None:
        request = sequence.request
        if not request.first_steps:
            request.first_token_ms = now_ms
        request.first_steps.append(self.step_number)
        self._kv_resident += request.prompt - self.model.prefilled_by(sequence)
        self._decoding[request.tenant] = self._decoding.get(request.tenant, 0) + 1
        last_step = self.step_number + request.output - 1
        heapq.heappush(self._ends, (last_step, request.number, sequence.number, sequence))

    def _end(self, sequence: Sequence, now_ms: float, done: Step) -> None:
        request = sequence.request
        self._in_batch -= 1
        self._decoding[request.tenant] -= 1
        self._blocks_reserved -= self.model.blocks(sequence)
        self._count_adapter(request, -1)
        self._kv_resident -= request.prompt + request.output
        request.to_end -= 1
        if not request.to_end:
            request.ended_ms = now_ms
            del self.held[request.number]
            self._held[request.tenant] -= request.sequences
            done.ended.append(request)

    def _let_in(self, now_ms: float) -> None:
        self.loads.arrive(now_ms, self._adapters)
        aside: list[Sequence] = []
        while self._waiting and self._in_batch < self.model.slots:
            sequence = self._waiting[0]
            needed = self.model.blocks(sequence)
            if self._blocks_reserved + needed > self.model.kv_blocks and self._blocks_reserved:
                break
            self._waiting.popleft()
            if not self._has_adapter_slot(sequence.request):
                aside.append(sequence)
                continue
            sequence.to_prefill = self.model.prefilled_by(sequence)
            self._in_batch += 1
            self._blocks_reserved += needed
            self.loads.use(sequence.request.adapter, self._adapters)
            self._count_adapter(sequence.request, 1)
            self._prefilling.append(sequence)
        self._waiting.extendleft(reversed(aside))

    def _has_adapter_slot(self, request: Request) -> bool:
        if not request.adapter or request.adapter in self._adapters:
            return True
        is_here = self.loads.is_here(request.adapter)
        return is_here and len(self._adapters) < self.model.adapter_slots

    def _count_adapter(self, request: Request, change: int) -> None:
        if request.adapter:
            count = self._adapters.pop(request.adapter, 0) + change
            if count:
                self._adapters[request.adapter] = count
