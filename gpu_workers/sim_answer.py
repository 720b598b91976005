"""What the simulated engine answers: planned whole from the prompt, told token by token."""

import asyncio
import hashlib
import random
import time
from typing import Any, Literal

import msgspec

from gpu_workers.engine import Output, Result
from gpu_workers.protocol.messages import Api, Envelope, Outcome, TokenUsage, WireError

WORDS = (  # noqa: SIM905 - easier to read
    "water gate turbine penstock river flow spill level pressure valve channel meter basin "
    "stream wheel power shaft intake weir sluice reservoir surge head tail race dam lock "
    "canal pump pipe bore crest runner nozzle vane guide drum float tide rain"
).split()

BYTES_PER_PROMPT_TOKEN = 4
COMPLETIONS_DEFAULT_MAX_TOKENS = 16

Choice = dict[str, Any]


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
        self._json = _AnswerJson(envelope, request)
        self._prompt_tokens = prompt_tokens
        self._sequences = sequences
        self._chunks: list[bytes] = []
        self._token_ids: list[int] = []
        self._first_token_at_ms: int | None = None
        self._is_cancelled = False

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
        """What is new since the last call."""
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
            )
        body = None if self.streams else self._json.body(self._sequences, self.usage())
        return Result(
            outcome=Outcome.COMPLETED,
            usage=self.usage(),
            finish_reason=self._sequences[0].finish_reason,
            body=body,
            first_token_at_ms=self._first_token_at_ms,
        )


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
    room = min(context_tokens, tier_context)
    sequences = [
        _plan_sequence(prompt, choice, request, min(limit, room - count))
        for prompt, count in zip(prompts, counts, strict=True)
        for choice in range(request.n or 1)
    ]
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
    pieces = [
        (each, WORDS[each] if place == 0 else f" {WORDS[each]}") for place, each in enumerate(ids)
    ]
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    cut = _cut_at_stop(pieces, [stop for stop in stops if stop])
    return _Sequence(*cut) if cut else _Sequence(pieces, finish_reason)


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


class _AnswerJson:
    """OpenAI's JSON for one request, in both its shapes."""

    def __init__(self, envelope: Envelope, request: _Request) -> None:
        self._is_chat = envelope.api is Api.CHAT_COMPLETIONS
        self._model = envelope.model
        prefix = "chatcmpl" if self._is_chat else "cmpl"
        self._id = f"{prefix}-{envelope.request_id}"
        self._created = int(time.time())
        self._encode = msgspec.json.Encoder().encode
        options = request.stream_options
        self.includes_usage = envelope.stream and options is not None and options.include_usage

    def opening_chunks(self, choices: int) -> list[bytes]:
        """The role of each choice; only chats have one."""
        if not self._is_chat:
            return []
        delta = {"role": "assistant", "content": ""}
        return [self._chunk_of(index, {"delta": delta}, None) for index in range(choices)]

    def chunk(self, index: int, text: str, finish_reason: str | None) -> bytes:
        content = {"delta": {"content": text}} if self._is_chat else {"text": text}
        return self._chunk_of(index, content, finish_reason)

    def usage_chunk(self, usage: TokenUsage) -> bytes:
        return self._encode(self._head(chunk=True) | {"choices": [], "usage": _usage_json(usage)})

    def body(self, sequences: list[_Sequence], usage: TokenUsage) -> bytes:
        choices = [
            self._choice(
                index,
                {"message": {"role": "assistant", "content": sequence.text}}
                if self._is_chat
                else {"text": sequence.text},
                sequence.finish_reason,
            )
            for index, sequence in enumerate(sequences)
        ]
        return self._encode(
            self._head(chunk=False) | {"choices": choices, "usage": _usage_json(usage)}
        )

    def _chunk_of(self, index: int, content: Choice, finish_reason: str | None) -> bytes:
        choice = self._choice(index, content, finish_reason)
        return self._encode(self._head(chunk=True) | {"choices": [choice]})

    def _choice(self, index: int, content: Choice, finish_reason: str | None) -> Choice:
        return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}

    def _head(self, *, chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self._is_chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def _usage_json(usage: TokenUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
