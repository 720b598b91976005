"""A gateway that keeps each token of each request with the time at which it came."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, cast

from redis.asyncio import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.calls import enqueue_arguments
from gpu_workers.protocol.messages import Delta, Envelope, Frame, Outcome, Terminal
from tests.support.greedy_answers.asking import likeliest_of
from tests.support.greedy_answers.compared import Answer

_READ_SECONDS = 1.0
_HEARTBEAT_SECONDS = 3600


@dataclass
class TimedStream:
    """What came of one request. `pieces` are events, and texts of those that differ in that alone;
    `arrivals`: when (seconds of `time.perf_counter`), and how many tokens there were then; `lost`
    counts frames that did not come in their order."""

    envelope: Envelope
    token_ids: list[int] = field(default_factory=list)
    pieces: list[bytes | str] = field(default_factory=list)
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    frames: int = 0
    lost: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: "asyncio.Future[Terminal]" = field(default_factory=asyncio.Future)

    @property
    def is_whole(self) -> bool:
        """Return whether it has ended, and every token that was to be made has come."""
        terminal = self.ended.result()
        counted = terminal.usage.completion_tokens
        return (
            terminal.outcome is Outcome.COMPLETED
            and self.lost == 0
            and len(self.token_ids) == counted == self.envelope.max_output_tokens
        )

    @property
    def answer(self) -> Answer:
        """Return what it came to, with log-probabilities where the request asked for them."""
        text = ""
        likeliest: list[dict[int, float]] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                text += piece
                continue
            for choice in json.loads(piece)["choices"]:
                text += choice["delta"].get("content") or ""
                tokens = (choice.get("logprobs") or {}).get("content") or []
                likeliest += [likeliest_of(token) for token in tokens]
        terminal = self.ended.result()
        return Answer(
            text=text,
            finish_reason=terminal.finish_reason or "",
            prompt_tokens=terminal.usage.prompt_tokens,
            completion_tokens=terminal.usage.completion_tokens,
            token_ids=self.token_ids,
            likeliest=likeliest,
        )

    def take(self, frame: Frame, at: float) -> None:
        self.lost += frame.seq != self.frames
        self.frames += 1
        if isinstance(frame, Terminal):
            self.ended.set_result(frame)
            return
        self.pieces += frame.chunks if isinstance(frame, Delta) else [frame.text]
        if frame.token_ids:
            self.token_ids += frame.token_ids
            self.arrivals.append((at, len(self.token_ids)))
            self.begun.set()


class TimedGateway:
    """Asks over the real dispatch functions, and reads what workers send to it."""

    def __init__(self, redis: Redis, gateway_id: str = "gateway-1", pool: str = "sim") -> None:
        self._redis = redis
        self._gateway_id = gateway_id
        self._pool = pool
        self._streams: dict[str, TimedStream] = {}

    async def ask(self, envelope: Envelope) -> TimedStream:
        """Enqueue a request of this gateway's."""
        stream = self._streams[envelope.request_id] = TimedStream(envelope)
        arguments = enqueue_arguments(envelope, max_queue_length=10_000)
        await self._redis.fcall(functions.ENQUEUE, 1, keys.pool_prefix(self._pool), *arguments)
        return stream

    async def read_forever(self) -> None:
        """Take in frames as they come."""
        heartbeat = keys.gateway_heartbeat(self._gateway_id)
        await self._redis.set(heartbeat, b"1", ex=_HEARTBEAT_SECONDS)
        frames: Any = keys.gateway_frames(self._gateway_id, self._pool)
        while True:
            found = await cast("Any", self._redis.blpop([frames], timeout=_READ_SECONDS))
            if found is None:
                continue
            at = time.perf_counter()
            for frame in codec.decode_frames(found[1]).frames:
                if (stream := self._streams.get(frame.request_id)) is not None:
                    stream.take(frame, at)
                    if stream.ended.done():
                        del self._streams[frame.request_id]
