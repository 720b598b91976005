"""What the simulated engine answers: planned whole from the prompt, told token by token."""

import asyncio
import hashlib
import random
from typing import Any, Literal

import msgspec

from gpu_workers.engine import Output, Result
from gpu_workers.protocol.messages import Api, Envelope, Outcome, TokenUsage, WireError
from gpu_workers.requests.prompt_bound import prompt_refusal
from gpu_workers.sim.openai_json import AnswerJson

WORDS = (  # noqa: SIM905 - easier to read
    "water gate turbine penstock river flow spill level pressure valve channel meter basin "
    "stream wheel power shaft intake weir sluice reservoir surge head tail race dam lock "
    "canal pump pipe bore crest runner nozzle vane guide drum float tide rain"
).split()

BYTES_PER_PROMPT_TOKEN = 4
COMPLETIONS_DEFAULT_MAX_TOKENS = 16


class SimRefusal(Exception):
    """What a tokenizer would refuse, before anything is generated."""

    def __init__(self, error: WireError, usage: TokenUsage) -> None:
        super().__init__(error.message)
        self.error = error
        self.usage = usage


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Request(msgspec.Struct):
    """The fields of both OpenAI requests that the simulation heeds."""

    model: str = ""
    messages: list[dict[str, Any]] = []
    prompt: str | list[Any] = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    n: int | None = None
    stop: str | list[str] | None = None
    stream_options: _StreamOptions | None = None


class _Sequence:
    """One choice: its planned pieces of text and how many of them have been told."""

    def __init__(self, pieces: list[tuple[int, str]], finish_reason: str) -> None:
        self.pieces = pieces
        self.finish_reason = finish_reason
        self.told = 0

    @property
    def is_ended(self) -> bool:
        return self.told >= len(self.pieces)

    def resumed(self, token_ids: list[int]) -> "_Sequence":
        """The same, after these tokens have been told."""
        before = [(each, _piece(each, place)) for place, each in enumerate(token_ids)]
        sequence = _Sequence([*before, *self.pieces[len(before) :]], self.finish_reason)
        sequence.told = len(before)
        return sequence

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces[: self.told])


class SimAnswer:
    """One request under way. `changed` is set by every step and by an abort."""

    def __init__(
        self,
        *,
        envelope: Envelope,
        request: _Request,
        prompt_tokens: int,
        sequences: list[_Sequence],
    ) -> None:
        self.changed = asyncio.Event()
        self.streams = envelope.stream
        self.priority = envelope.priority
        options = request.stream_options
        self._json = AnswerJson(
            envelope, includes_usage=options is not None and options.include_usage
        )
        self._prompt_tokens = prompt_tokens
        self._sequences = sequences
        self._chunks: list[bytes] = []
        self._token_ids: list[int] = []
        self._first_token_at_ms: int | None = None
        self._is_cancelled = False
        self._replay = self._told_before() if any(each.told for each in sequences) else None

    @property
    def is_ended(self) -> bool:
        return self._is_cancelled or not self.open_sequences

    @property
    def open_sequences(self) -> int:
        return sum(not sequence.is_ended for sequence in self._sequences)

    def cancel(self) -> None:
        self._is_cancelled = True
        self.changed.set()

    def step(self, now_ms: int) -> None:
        """One more token for each open choice."""
        if self._first_token_at_ms is None:
            self._first_token_at_ms = now_ms
            if not self.usage().completion_tokens:
                self._chunks += self._json.opening_chunks(len(self._sequences))
        for index, sequence in enumerate(self._sequences):
            if sequence.is_ended:
                continue
            token_id, text = sequence.pieces[sequence.told]
            sequence.told += 1
            finish_reason = sequence.finish_reason if sequence.is_ended else None
            self._chunks.append(self._json.chunk(index, text, finish_reason))
            if len(self._sequences) == 1:
                self._token_ids.append(token_id)
        if self.is_ended and self._json.includes_usage:
            self._chunks.append(self._json.usage_chunk(self.usage()))
        self.changed.set()

    def take_output(self) -> Output | None:
        """What is new since the last call; what the request goes on from comes by itself."""
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
            completion_tokens=sum(sequence.told for sequence in self._sequences),
        )

    def result(self) -> Result:
        if self._is_cancelled:
            return Result(
                outcome=Outcome.CANCELLED,
                usage=self.usage(),
                first_token_at_ms=self._first_token_at_ms,
                token_ids=[] if self.streams else self._told_ids(),
            )
        answers = [(sequence.text, sequence.finish_reason) for sequence in self._sequences]
        body = None if self.streams else self._json.body(answers, self.usage())
        return Result(
            outcome=Outcome.COMPLETED,
            usage=self.usage(),
            finish_reason=self._sequences[0].finish_reason,
            body=body,
            first_token_at_ms=self._first_token_at_ms,
        )

    def _told_before(self) -> Output:
        """All that an earlier attempt has told, at once."""
        (sequence,) = self._sequences
        finish_reason = sequence.finish_reason if sequence.is_ended else None
        chunks = self._json.opening_chunks(1)
        chunks.append(self._json.chunk(0, sequence.text, finish_reason))
        if self.is_ended and self._json.includes_usage:
            chunks.append(self._json.usage_chunk(self.usage()))
        return Output(
            chunks=chunks,
            completion_tokens=sequence.told,
            token_ids=self._told_ids(),
            prompt_tokens=self._prompt_tokens,
        )

    def _told_ids(self) -> list[int]:
        """None where there are several choices."""
        if len(self._sequences) > 1:
            return []
        (sequence,) = self._sequences
        return [token_id for token_id, _ in sequence.pieces[: sequence.told]]


def plan_answer(envelope: Envelope, context_tokens: int, overhead_tokens: int) -> SimAnswer:
    """Raises `SimRefusal` where vLLM would refuse before generating."""
    request = msgspec.json.decode(envelope.body, type=_Request)
    is_chat = envelope.api is Api.CHAT_COMPLETIONS
    prompts = [_chat_text(request.messages)] if is_chat else _completion_prompts(request.prompt)
    overhead = overhead_tokens * len(request.messages) if is_chat else 0
    counts = [max(1, -(-len(prompt) // BYTES_PER_PROMPT_TOKEN)) + overhead for prompt in prompts]
    bound = request.max_completion_tokens or request.max_tokens
    if bound is None and not is_chat:
        bound = COMPLETIONS_DEFAULT_MAX_TOKENS
    limit = min(bound or envelope.max_output_tokens, envelope.max_output_tokens)
    tier_context = envelope.max_context_tokens or context_tokens
    if request.min_tokens > limit:
        raise SimRefusal(_too_many_least_tokens(limit), TokenUsage())
    for count in counts:
        if count + (bound or 1) > context_tokens:
            raise SimRefusal(_context_overflow(context_tokens, count, bound), TokenUsage())
        if count >= tier_context:
            raise SimRefusal(_tier_overflow(tier_context, count), TokenUsage())
    if refusal := prompt_refusal(envelope, sum(counts)):
        raise SimRefusal(refusal, TokenUsage())
    room = min(context_tokens, tier_context)
    sequences = [
        _plan_sequence(prompt, choice, request, min(limit, room - count))
        for prompt, count in zip(prompts, counts, strict=True)
        for choice in range(request.n or 1)
    ]
    if envelope.resumed_token_ids:
        sequences = [sequences[0].resumed(envelope.resumed_token_ids)]
    return SimAnswer(
        envelope=envelope, request=request, prompt_tokens=sum(counts), sequences=sequences
    )


def _plan_sequence(prompt: bytes, choice: int, request: _Request, limit: int) -> _Sequence:
    seed = hashlib.blake2s(prompt + choice.to_bytes(2, "big")).digest()
    draw = random.Random(seed)
    length = max(12 + int(draw.random() * 48), request.min_tokens)
    if request.ignore_eos:
        length = limit
    finish_reason: Literal["stop", "length"] = "stop" if length <= limit else "length"
    if request.ignore_eos:
        finish_reason = "length"
    ids = [int(draw.random() * len(WORDS)) for _ in range(min(length, limit))]
    pieces = [(each, _piece(each, place)) for place, each in enumerate(ids)]
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    cut = _cut_at_stop(pieces, [stop for stop in stops if stop])
    return _Sequence(*cut) if cut else _Sequence(pieces, finish_reason)


def _piece(token_id: int, place: int) -> str:
    return f" {WORDS[token_id]}" if place else WORDS[token_id]


def _cut_at_stop(
    pieces: list[tuple[int, str]], stops: list[str]
) -> tuple[list[tuple[int, str]], str] | None:
    """The pieces up to the token that completes a stop string, its text left out, as vLLM does."""
    text = ""
    for count, (_, piece) in enumerate(pieces, start=1):
        text += piece
        found = [text.index(stop) for stop in stops if stop in text]
        if found:
            end, kept = min(found), []
            for token_id, each in pieces[:count]:
                kept.append((token_id, each[: max(0, end)]))
                end -= len(each)
            return kept, "stop"
    return None


def _chat_text(messages: list[dict[str, Any]]) -> bytes:
    return b"\n".join(
        f"{message.get('role')}: {_content_text(message.get('content'))}".encode()
        for message in messages
    )


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def _completion_prompts(prompt: str | list[Any]) -> list[bytes]:
    """One text, one list of token ids, or a list of either."""
    if isinstance(prompt, str):
        return [prompt.encode()]
    if prompt and isinstance(prompt[0], int):
        return [_token_text(prompt)]
    return [each.encode() if isinstance(each, str) else _token_text(each) for each in prompt]


def _token_text(token_ids: list[int]) -> bytes:
    return b"".join(token.to_bytes(BYTES_PER_PROMPT_TOKEN, "big") for token in token_ids)


def _context_overflow(context_tokens: int, prompt_tokens: int, bound: int | None) -> WireError:
    asked = f" and {bound} tokens of output were asked for" if bound else ""
    return WireError(
        status=400,
        message=(
            f"This model's context length is {context_tokens} tokens, but the request has "
            f"{prompt_tokens} tokens of input{asked}. Shorten the input or ask for less output."
        ),
        type="invalid_request_error",
        code="context_length_exceeded",
        param="messages",
    )


def _tier_overflow(tier_context: int, prompt_tokens: int) -> WireError:
    return WireError(
        status=400,
        message=(
            f"The tier's maximum context length is {tier_context} tokens, prompt and output "
            f"together, but the prompt has {prompt_tokens}."
        ),
        type="invalid_request_error",
        code="context_length_exceeded",
    )


def _too_many_least_tokens(limit: int) -> WireError:
    return WireError(
        status=400,
        message=f"min_tokens must be at most the {limit} tokens that this request may generate.",
        type="invalid_request_error",
        code="invalid_request",
        param="min_tokens",
    )
