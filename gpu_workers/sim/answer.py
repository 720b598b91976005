"""What the simulated engine answers: planned whole from the prompt, generated token by token."""

import asyncio

from gpu_workers.engine import Output, Result
from gpu_workers.protocol.messages import Envelope, Outcome, TokenUsage
from gpu_workers.requests.prompt_bound import prompt_refusal
from gpu_workers.sim.abilities import check_abilities
from gpu_workers.sim.endpoints.endpoint import SharedFields, SimEndpoint
from gpu_workers.sim.endpoints.registry import ENDPOINTS
from gpu_workers.sim.model import SimSequence, count_tokens, plan_sequence
from gpu_workers.sim.openai_json import AnswerJson
from gpu_workers.sim.refusal import SimRefusal, context_overflow, min_tokens_above, tier_overflow


class SimAnswer:
    """One request under way. `changed` is set by every step and by an abort."""

    def __init__(
        self,
        *,
        envelope: Envelope,
        endpoint: SimEndpoint,
        fields: SharedFields,
        prompt_tokens: int,
        sequences: list[SimSequence],
    ) -> None:
        self.changed = asyncio.Event()
        self.streams = envelope.stream
        self.priority = envelope.priority
        self.adapter = envelope.adapter
        self._json = AnswerJson(endpoint, envelope, fields)
        self._prompt_tokens = prompt_tokens
        self._sequences = sequences
        self._chunks: list[bytes] = []
        self._token_ids: list[int] = []
        self._first_token_ns: int | None = None
        self._is_cancelled = False
        self._admitted = 0
        # Of those in the batch, the ones that have not ended
        self.running_sequences = 0
        self._replay = self._resumed_output() if any(each.generated for each in sequences) else None

    @property
    def is_ended(self) -> bool:
        return self._is_cancelled or all(sequence.is_ended for sequence in self._sequences)

    @property
    def waiting_sequences(self) -> int:
        """Return how many sequences are not in the batch yet."""
        return len(self._sequences) - self._admitted

    @property
    def kv_tokens(self) -> int:
        """Return how many tokens of the KV cache it takes, its prompt once."""
        if not self._admitted:
            return 0
        admitted = self._sequences[: self._admitted]
        return self._prompt_tokens + sum(sequence.generated for sequence in admitted)

    def admit(self, most: int) -> int:
        """Let so many more sequences into the batch, or as many as wait; return how many."""
        admitted = self._sequences[self._admitted : self._admitted + most]
        self._admitted += len(admitted)
        self.running_sequences += sum(not sequence.is_ended for sequence in admitted)
        return len(admitted)

    def cancel(self) -> None:
        self._is_cancelled = True
        self.changed.set()

    def step(self, now_ns: int) -> None:
        """Generate one more token for each open choice that is in the batch."""
        if self._first_token_ns is None:
            self._first_token_ns = now_ns
            if not self.usage().completion_tokens:
                self._chunks += self._json.opening_chunks(len(self._sequences))
        for index, sequence in enumerate(self._sequences[: self._admitted]):
            if sequence.is_ended:
                continue
            token_id, text = sequence.tokens[sequence.generated]
            sequence.generated += 1
            self.running_sequences -= sequence.is_ended
            finish_reason = sequence.finish_reason if sequence.is_ended else None
            self._chunks.append(self._json.chunk(index, text, finish_reason))
            if len(self._sequences) == 1:
                self._token_ids.append(token_id)
        if self.is_ended and self._json.includes_usage:
            self._chunks.append(self._json.usage_chunk(self.usage()))
        self.changed.set()

    def take_output(self) -> Output | None:
        """Return what is new since the last call; the output that the request resumes from is an
        output of its own."""
        if self._replay is not None:
            replay, self._replay = self._replay, None
            return replay
        if not self._chunks:
            return None
        output = Output(
            chunks=self._chunks,
            completion_tokens=self.usage().completion_tokens,
            token_ids=self._token_ids,
            prompt_tokens=self._prompt_tokens,
        )
        self._chunks, self._token_ids = [], []
        return output

    def usage(self) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=sum(sequence.generated for sequence in self._sequences),
        )

    def result(self) -> Result:
        if self._is_cancelled:
            return Result(
                outcome=Outcome.CANCELLED,
                usage=self.usage(),
                first_token_ns=self._first_token_ns,
                token_ids=[] if self.streams else self._generated_ids(),
            )
        answers = [(sequence.text, sequence.finish_reason) for sequence in self._sequences]
        body = None if self.streams else self._json.body(answers, self.usage())
        return Result(
            outcome=Outcome.COMPLETED,
            usage=self.usage(),
            finish_reason=self._sequences[0].finish_reason,
            body=body,
            first_token_ns=self._first_token_ns,
        )

    def _resumed_output(self) -> Output:
        """Return all that earlier attempts have generated, at once."""
        (sequence,) = self._sequences
        finish_reason = sequence.finish_reason if sequence.is_ended else None
        chunks = self._json.opening_chunks(1)
        chunks.append(self._json.chunk(0, sequence.text, finish_reason))
        if self.is_ended and self._json.includes_usage:
            chunks.append(self._json.usage_chunk(self.usage()))
        return Output(
            chunks=chunks,
            completion_tokens=sequence.generated,
            token_ids=self._generated_ids(),
            prompt_tokens=self._prompt_tokens,
        )

    def _generated_ids(self) -> list[int]:
        """Return the token ids generated so far; none if there are several choices."""
        return self._sequences[0].token_ids if len(self._sequences) == 1 else []


def plan_answer(
    envelope: Envelope, context_tokens: int, overhead_tokens: int, voice: bytes = b""
) -> SimAnswer:
    """Plan the whole answer; a template adds `overhead_tokens` to each message, and `voice` is what
    an adapter makes another answer by. Raises `SimRefusal` if vLLM would refuse before
    generating, and for what simulated text cannot have."""
    check_abilities(envelope.body)
    endpoint = ENDPOINTS[envelope.api]
    request = endpoint.parse(envelope.body)
    overhead = overhead_tokens * request.messages
    counts = [count_tokens(prompt) + overhead for prompt in request.prompts]
    bound, fields = request.max_tokens, request.fields
    limit = min(bound or envelope.max_output_tokens, envelope.max_output_tokens)
    tier_context = envelope.max_context_tokens or context_tokens
    if fields.min_tokens > limit:
        raise min_tokens_above(limit)
    for count in counts:
        if count + (bound or 1) > context_tokens:
            raise context_overflow(envelope.api, context_tokens, count, bound)
        if count >= tier_context:
            raise tier_overflow(envelope.api, tier_context, count)
    if refusal := prompt_refusal(envelope, sum(counts)):
        raise SimRefusal(refusal)
    room = min(context_tokens, tier_context)
    sequences = [
        plan_sequence(voice + prompt, choice, fields, min(limit, room - count))
        for prompt, count in zip(request.prompts, counts, strict=True)
        for choice in range(fields.n or 1)
    ]
    if envelope.resumed_token_ids:
        sequences = [sequences[0].resumed(envelope.resumed_token_ids)]
    return SimAnswer(
        envelope=envelope,
        endpoint=endpoint,
        fields=fields,
        prompt_tokens=sum(counts),
        sequences=sequences,
    )
