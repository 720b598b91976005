"""A worker that does what a test tells it: it speaks the wire and generates nothing by itself."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.adapters import AdapterLevel
from gpu_workers.protocol.calls import finish_arguments
from gpu_workers.protocol.messages import (
    Api,
    Assignment,
    Cancellation,
    Confirmation,
    Delta,
    Envelope,
    FrameBatch,
    Outcome,
    Prefetch,
    Resend,
    Terminal,
    TokenUsage,
    WireError,
)
from inference.dispatch.queue import usage_entry
from tests.support.gateways.cast import POOL, encoded_worker_info

WORKER_ID = "scripted#1"
WORDS = ["One", " two", " three"]


class Run:
    """One attempt of a request, in the hands of a script."""

    def __init__(self, worker: "ScriptedWorker", envelope: Envelope, attempt: int) -> None:
        self.worker = worker
        self.envelope = envelope
        self.attempt = attempt
        self.cancelled = asyncio.Event()
        self.seq = 0
        self.tokens = 0

    async def say(self, *words: str, seq: int | None = None, attempt: int | None = None) -> None:
        """One delta with a chunk a word."""
        await self.push(self.delta(*words, seq=seq, attempt=attempt))

    def delta(self, *words: str, seq: int | None = None, attempt: int | None = None) -> Delta:
        """The next one, for the script to send or to withhold."""
        self.tokens += len(words)
        return Delta(
            request_id=self.envelope.request_id,
            attempt=self.attempt if attempt is None else attempt,
            seq=self._next_seq() if seq is None else seq,
            chunks=[self.chunk(word) for word in words],
            completion_tokens=self.tokens,
            token_ids=list(range(self.tokens - len(words), self.tokens)),
            prompt_tokens=0 if self.seq > 1 else 3,
        )

    async def say_again(self, text: str) -> None:
        """What an earlier attempt has said, as an engine that goes on from it does."""
        token_ids = self.envelope.resumed_token_ids
        self.tokens = len(token_ids)
        await self.push(
            Delta(
                request_id=self.envelope.request_id,
                attempt=self.attempt,
                seq=self._next_seq(),
                chunks=[self.chunk(text)],
                completion_tokens=self.tokens,
                token_ids=token_ids,
                prompt_tokens=3,
            )
        )

    async def end(
        self,
        outcome: Outcome = Outcome.COMPLETED,
        *,
        error: WireError | None = None,
        body: bytes | None = None,
    ) -> bool:
        """Finishes and, if that was accepted, sends the terminal frame."""
        accepted = await self.finish(outcome, error=error)
        if accepted:
            await self.push(self.terminal(outcome, error=error, body=body))
        return accepted

    async def finish(
        self,
        outcome: Outcome = Outcome.COMPLETED,
        *,
        error: WireError | None = None,
        last_frames: Sequence[Delta | Terminal] = (),
    ) -> bool:
        """Puts the end on record, and leaves these frames with it."""
        entry = usage_entry(
            self.envelope,
            attempt=self.attempt,
            outcome=outcome,
            error_code=error.code if error else None,
            worker_id=self.worker.worker_id,
            usage=TokenUsage(prompt_tokens=3, completion_tokens=self.tokens),
        )
        kept = codec.encode(self._batch(*last_frames)) if last_frames else b""
        accepted = await self.worker.call(
            functions.FINISH, *finish_arguments(entry, last_frames=kept)
        )
        return bool(accepted[0] == 1)

    def terminal(self, outcome: Outcome, **changes: Any) -> Terminal:
        return Terminal(
            request_id=self.envelope.request_id,
            attempt=self.attempt,
            seq=self._next_seq(),
            outcome=outcome,
            usage=TokenUsage(prompt_tokens=3, completion_tokens=self.tokens),
            finish_reason="stop" if outcome is Outcome.COMPLETED else None,
            **changes,
        )

    async def push(self, *frames: Delta | Terminal, number: int = 0) -> None:
        """One batch, which the gateway confirms if it has a number."""
        await self._write(structs.replace(self._batch(*frames), number=number))

    async def say_unkept(self, demand: Resend) -> None:
        """Answer that what the gateway asked for is kept no longer."""
        await self._write(structs.replace(self._batch(), unkept=[demand]))

    async def _write(self, batch: FrameBatch) -> None:
        key = keys.gateway_frames(self.envelope.gateway_id, self.envelope.pool)
        await self.worker.redis.rpush(key, codec.encode(batch))

    def _batch(self, *frames: Delta | Terminal) -> FrameBatch:
        return FrameBatch(worker_id=self.worker.worker_id, frames=list(frames))

    def chunk(self, word: str) -> bytes:
        identity = {"created": 1, "model": self.envelope.model}
        request_id = self.envelope.request_id
        if self.envelope.api is Api.CHAT_COMPLETIONS:
            identity |= {"id": f"chatcmpl-{request_id}", "object": "chat.completion.chunk"}
            choice: dict[str, Any] = {"delta": {"content": word}}
        else:
            identity |= {"id": f"cmpl-{request_id}", "object": "text_completion"}
            choice = {"text": word}
        return json.dumps({**identity, "choices": [{"index": 0, **choice}]}).encode()

    def answer(self, text: str) -> bytes:
        message = {"role": "assistant", "content": text}
        is_chat = self.envelope.api is Api.CHAT_COMPLETIONS
        choice = {"message": message} if is_chat else {"text": text}
        return json.dumps(
            {
                "id": f"chatcmpl-{self.envelope.request_id}",
                "object": "chat.completion" if is_chat else "text_completion",
                "created": 1,
                "model": self.envelope.model,
                "choices": [{"index": 0, "finish_reason": "stop", **choice}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6},
            }
        ).encode()

    def _next_seq(self) -> int:
        self.seq += 1
        return self.seq - 1


Script = Callable[[Run], Awaitable[None]]


async def count_to_three(run: Run) -> None:
    """The script where a test names none."""
    if run.envelope.stream:
        for word in WORDS:
            await run.say(word)
        await run.end()
    else:
        run.tokens = len(WORDS)
        await run.end(body=run.answer("".join(WORDS)))


async def talk_until_cancelled(run: Run) -> None:
    await run.say("One")
    await run.cancelled.wait()
    await run.end(Outcome.CANCELLED)


class ScriptedWorker:
    """Runs `script` for each assignment until it is stopped."""

    def __init__(
        self,
        redis_url: str,
        script: Script = count_to_three,
        *,
        pool: str = POOL,
        worker_id: str = WORKER_ID,
    ) -> None:
        self.pool = pool
        self.worker_id = worker_id
        self.redis = Redis.from_url(redis_url, socket_timeout=None, max_connections=10_000)
        self.script = script
        self.runs: dict[str, Run] = {}
        self.cancelled: list[str] = []
        self.demands: list[Resend] = []
        self.confirmed: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, slots: int = 64, **info: Any) -> None:
        encoded = encoded_worker_info(self.worker_id, slots=slots, pool=self.pool, **info)
        await self.call(functions.REGISTER, self.worker_id, self.worker_id, encoded)
        await self._handle(await self.claim(encoded, slots))
        self._tasks.append(asyncio.create_task(self._read()))

    async def keep_lease(self, *, slots: int = 64, **info: Any) -> None:
        """Claim each second, for a test that lasts longer than a lease; never returns."""
        encoded = encoded_worker_info(self.worker_id, slots=slots, pool=self.pool, **info)
        while True:
            await self._handle(await self.claim(encoded, slots))
            await asyncio.sleep(1)

    async def claim(self, info: bytes, slots: int) -> Any:
        return await self.call(functions.CLAIM, self.worker_id, info, slots, 0, 0, 1)

    async def die(self) -> None:
        """As by kill -9, long enough ago for the lease to have run out."""
        await self._cancel_tasks()
        await self.lose_its_lease()

    async def lose_its_lease(self) -> None:
        """As if it had been silent for long."""
        await self.redis.zadd(keys.pool_heartbeats(self.pool), {self.worker_id: 1})

    async def stop(self) -> None:
        await self._cancel_tasks()
        await self.redis.aclose()

    async def call(self, function: str, *arguments: Any) -> Any:
        answer: Any = await self.redis.fcall(function, 1, keys.pool_prefix(self.pool), *arguments)
        return answer

    async def records(self) -> list[Any]:
        """The usage records so far."""
        entries: Any = await self.redis.xrange(keys.pool_usage(self.pool))
        return [
            codec.decode_usage_entry(fields[b"record"])
            for _, fields in entries
            if b"record" in fields
        ]

    async def _cancel_tasks(self) -> None:
        await cancel_and_wait(self._tasks)
        self._tasks.clear()

    async def _read(self) -> None:
        while True:
            popped: Any = await self.redis.blmpop(
                1, 1, keys.pool_inbox(self.pool, self.worker_id), direction="LEFT", count=64
            )
            if popped:
                await self._handle(popped[1])

    async def _handle(self, messages: list[bytes]) -> None:
        for message in map(codec.decode_inbox, messages):
            if isinstance(message, Assignment):
                envelope = codec.decode_envelope(message.envelope)
                run = self.runs[message.request_id] = Run(self, envelope, message.attempt)
                self._tasks.append(asyncio.ensure_future(self.script(run)))
            elif isinstance(message, Prefetch):
                loaded = (message.adapter, int(AdapterLevel.MEMORY), 0)
                await self.call(functions.POST_ADAPTERS, self.worker_id, "", *loaded)
            elif isinstance(message, Resend):
                self.demands.append(message)
            elif isinstance(message, Confirmation):
                self.confirmed.append(message.number)
            elif isinstance(message, Cancellation):
                self.cancelled.append(message.request_id)
                if message.request_id in self.runs:
                    self.runs[message.request_id].cancelled.set()
