"""The dispatch function `finish`, which decides whether an attempt ends its request: what it
answers, and one round trip for all requests that end in one step of the engine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.protocol.codec import WireFormatError

FinishArguments = tuple[str | bytes | int, ...]


class UnknownRequest(RuntimeError):
    """Redis has lost this request: adopt it, then ask again."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The attempt has ended its request; its record has this id in the usage stream."""

    stream_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The request has ended otherwise, or another attempt has it. `counted_elsewhere`: how many
    tokens of this attempt a record or a later attempt counts, None if unknown."""

    counted_elsewhere: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """The attempt is under way and nothing was changed: the answer to mode `ask` alone."""


def read_finish(answer: Any) -> Accepted | Refused | Undecided:
    """Decode an answer of `finish`. Raises the answer itself if it is an error, `UnknownRequest` if
    Redis has lost the request, `WireFormatError` if it is no answer of `finish`."""
    match answer:
        case [1, stream_id]:
            return Accepted(stream_id.decode())
        case [0, tokens, reason]:
            return Refused(tokens if tokens >= 0 else None, reason.decode())
        case [2]:
            return Undecided()
        case [-1]:
            raise UnknownRequest
        case Exception():
            raise answer
    raise WireFormatError(f"expected an answer of finish, got: {answer!r}")


@dataclass(frozen=True, slots=True)
class _Pending:
    arguments: FinishArguments
    decision: "asyncio.Future[Accepted | Refused]"


class FinishBatches:
    """Gathers calls of `finish`. `send` runs one batch at a time and returns an answer for each
    call, errors among them."""

    def __init__(self, send: Callable[[Sequence[FinishArguments]], Awaitable[list[Any]]]) -> None:
        self._send = send
        self._pending: list[_Pending] = []
        self._flush: asyncio.Task[None] | None = None

    async def add(self, arguments: FinishArguments) -> Accepted | Refused:
        """Join the next batch and wait for its decision. Raises as `read_finish` does."""
        decision: asyncio.Future[Accepted | Refused] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(arguments, decision))
        if self._flush is None:
            self._flush = asyncio.create_task(self._flush_all(), name="finishes")
        return await decision

    async def close(self) -> None:
        if self._flush is not None:
            await cancel_and_wait([self._flush])

    async def _flush_all(self) -> None:
        try:
            while self._pending:
                await asyncio.sleep(0)  # let the other requests of the same engine step join
                batch, self._pending = self._pending, []
                try:
                    answers = await self._send([each.arguments for each in batch])
                except Exception as error:  # noqa: BLE001 - it is for each of those that wait
                    answers = [error] * len(batch)
                for each, answer in zip(batch, answers, strict=True):
                    _decide(each, answer)
        finally:
            self._flush = None


def _decide(pending: _Pending, answer: Any) -> None:
    if pending.decision.done():
        return
    try:
        decision = read_finish(answer)
        if isinstance(decision, Undecided):
            raise WireFormatError("expected a decision of finish, got none")
    except Exception as error:  # noqa: BLE001 - it is for whoever waits
        pending.decision.set_exception(error)
    else:
        pending.decision.set_result(decision)
