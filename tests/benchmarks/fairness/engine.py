"""A discrete model of a batching engine: who is in the batch, and how long a step takes.

    step = fixed + per_sequence * decoding + per_prompt_token * prefilled + per_kv_token * resident

Prompts are prefilled in chunks of at most `prefill_budget` tokens a step, in order of arrival; a
sequence's first token comes with the step that ends its prefill. A request is let in when its
prompt and output fit the KV cache, else it waits inside the engine, in order.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EngineModel:
    """Milliseconds and tokens. The default is near the demo model on two CPU cores: 64 streams at
    about 9,000 tokens/s."""

    fixed_ms: float = 2.0
    per_sequence_ms: float = 0.075
    per_prompt_token_ms: float = 0.01
    per_kv_token_ms: float = 0.00002
    slots: int = 64
    kv_tokens: int = 131_072
    prefill_budget: int = 512


@dataclass(slots=True, eq=False)
class Request:
    """One request through its life; times in milliseconds since the start of a run."""

    number: int
    tenant: str
    arrived_ms: float
    prompt: int
    output: int
    key: str = "key"
    is_refused: bool = False
    started_ms: float = -1.0
    first_token_ms: float = -1.0
    ended_ms: float = -1.0
    to_prefill: int = 0
    first_step: int = -1

    @property
    def ttft_ms(self) -> float:
        return self.first_token_ms - self.arrived_ms

    def decoded(self, step: int) -> int:
        """Output tokens after this step."""
        return 0 if self.first_step < 0 else min(self.output, step - self.first_step + 1)


@dataclass(slots=True)
class Step:
    """What one step did: what it prefilled and who ended with it."""

    duration_ms: float
    prefilled: list[tuple[Request, int]]
    decoding: dict[str, int]
    held: dict[str, int]
    ended: list[Request] = field(default_factory=list)


class Engine:
    """Runs steps; each is as long as what it does."""

    def __init__(self, model: EngineModel) -> None:
        self.model = model
        self.step_number = 0
        self.held: dict[int, Request] = {}
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()
        self._ends: list[tuple[int, int, Request]] = []
        self._decoding: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._kv_reserved = 0
        self._kv_resident = 0

    @property
    def free_slots(self) -> int:
        return self.model.slots - len(self.held)

    def add(self, request: Request, now_ms: float) -> None:
        request.started_ms = now_ms
        request.to_prefill = request.prompt
        self.held[request.number] = request
        self._held[request.tenant] = self._held.get(request.tenant, 0) + 1
        self._waiting.append(request)
        self._let_in()

    def step(self, now_ms: float) -> Step:
        """One step from `now_ms` on."""
        model = self.model
        decoding = dict(self._decoding)
        sequences = sum(decoding.values())
        prefilled, budget = [], model.prefill_budget
        while self._prefilling and budget:
            request = self._prefilling[0]
            chunk = min(budget, request.to_prefill)
            request.to_prefill -= chunk
            budget -= chunk
            prefilled.append((request, chunk))
            if request.to_prefill:
                break
            self._prefilling.popleft()
        duration = (
            model.fixed_ms
            + model.per_sequence_ms * sequences
            + model.per_prompt_token_ms * (model.prefill_budget - budget)
            + model.per_kv_token_ms * self._kv_resident
        )
        self._kv_resident += sequences + model.prefill_budget - budget
        self.step_number += 1
        done = Step(
            duration_ms=duration, prefilled=prefilled, decoding=decoding, held=dict(self._held)
        )
        for request, _ in prefilled:
            if not request.to_prefill:
                self._begin_decoding(request, now_ms + duration)
        while self._ends and self._ends[0][0] <= self.step_number:
            self._end(heapq.heappop(self._ends)[2], now_ms + duration, done)
        self._let_in()
        return done

    def _begin_decoding(self, request: Request, now_ms: float) -> None:
        request.first_token_ms = now_ms
        request.first_step = self.step_number
        self._decoding[request.tenant] = self._decoding.get(request.tenant, 0) + 1
        end = (self.step_number + request.output - 1, request.number, request)
        heapq.heappush(self._ends, end)

    def _end(self, request: Request, now_ms: float, done: Step) -> None:
        request.ended_ms = now_ms
        self._decoding[request.tenant] -= 1
        self._kv_reserved -= request.prompt + request.output
        self._kv_resident -= request.prompt + request.output
        del self.held[request.number]
        self._held[request.tenant] -= 1
        done.ended.append(request)

    def _let_in(self) -> None:
        while self._waiting:
            needed = self._waiting[0].prompt + self._waiting[0].output
            if self._kv_reserved + needed > self.model.kv_tokens and self._kv_reserved:
                return
            self._kv_reserved += needed
            self._prefilling.append(self._waiting.popleft())
