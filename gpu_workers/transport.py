"""A worker's calls to its pool in Redis: registration, claims, inbox, `finish`, gateways' liveness.

Calls are retried with a growing delay while Redis is away, so that a restart of Redis is a delay
and not an error. Every call here may be repeated: the dispatch functions are idempotent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError

from gpu_workers.finish import Accepted, FinishArguments, FinishBatches, Refused
from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.adapters import AdapterLevel
from gpu_workers.protocol.calls import adoption_arguments, finish_arguments, requeue_arguments
from gpu_workers.protocol.clock import read_clock
from gpu_workers.protocol.codec import WireFormatError
from gpu_workers.protocol.messages import Envelope, InboxMessage, Requeued, RetryReason, WorkerInfo
from gpu_workers.protocol.redis_errors import code_of, is_transient
from gpu_workers.protocol.redis_url import connect_async
from gpu_workers.protocol.usage import UsageEntry

_T = TypeVar("_T")

FIRST_RETRY_SECONDS: Final = 0.1
MAX_RETRY_SECONDS: Final = 2.0
INBOX_BLOCK_SECONDS: Final = 5
INBOX_BATCH: Final = 64

_log = structlog.get_logger("gpu_workers.transport")


class Fenced(RuntimeError):
    """Another process has registered under this worker's name: stop at once."""


class UnknownWorker(RuntimeError):
    """Redis has lost this worker: register again."""


class NotPermitted(RuntimeError):
    """The Redis user of this worker may not serve its pool."""


class WrongModel(RuntimeError):
    """The pool serves another model, or by another engine, than this worker would."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far one attempt is. `prompt_tokens` 0 as long as they are not counted;
    `completion_tokens` are of all its `sequences`."""

    request_id: str
    attempt: int
    prompt_tokens: int
    completion_tokens: int
    sequences: int = 1


class Transport:
    """One worker's connection to its pool. Blocking reads have a client of their own, because
    redis-py's socket timeout would end them."""

    def __init__(self, redis_url: str, *, pool: str, worker_id: str, worker_name: str) -> None:
        self._pool = keys.pool_prefix(pool)
        self._inbox_key = keys.pool_inbox(pool, worker_id)
        self.pool_name = pool
        self._worker_id = worker_id
        self._worker_name = worker_name
        # All retries are ours: redis-py's own would hide that the answer of a first try, with
        # requests to run in it, was lost.
        never = Retry(NoBackoff(), 0)
        self.redis: Redis = connect_async(redis_url, socket_timeout=5, retry=never)
        self._inbox: Redis = connect_async(redis_url, socket_timeout=None, retry=never)
        self._may_have_lost_messages = False
        self._finishes = FinishBatches(self._send_finishes)

    async def register(self, info: WorkerInfo) -> list[str]:
        """Take the worker's name; return the ids of earlier incarnations that this fenced. Raises
        `NotPermitted` if the worker was given the URL of another role or pool, `Fenced` if another
        process has taken the name since, and `WrongModel` if the pool serves something else."""
        encoded = codec.encode(info)
        name = self._worker_name

        async def call() -> list[bytes]:
            await read_clock(self.redis)
            fenced: list[bytes] = await self._fcall(
                functions.REGISTER, self._worker_id, name, encoded
            )
            return fenced

        try:
            return [each.decode() for each in await self._retry(call)]
        except NoPermissionError as error:
            raise NotPermitted(
                "The user in PENSTOCK_DISPATCH_REDIS_URL may not serve the pool "
                f"{self.pool_name}: give that of its workers, see `manage.py redis_acl`."
            ) from error

    async def adopt(self, requests: Iterable[tuple[Envelope, int]]) -> set[str]:
        """Report which attempts are under way here, after registering with a Redis that has lost
        everything. Return the ids of requests that another worker has by now."""
        arguments: list[str | bytes] = []
        for envelope, attempt in requests:
            arguments += adoption_arguments(envelope, attempt)
        if not arguments:
            return set()

        async def call() -> list[bytes]:
            stale: list[bytes] = await self._fcall(functions.ADOPT, self._worker_id, "", *arguments)
            return stale

        return {each.decode() for each in await self._retry(call)}

    async def claim(self, info: WorkerInfo, *, slots: int, ready: bool) -> list[InboxMessage]:
        """Renew the lease and ask for requests for all of so many slots that are free.

        Raises `Fenced` or `UnknownWorker`, and a connection error rather than waiting: the caller
        comes back within a second anyway.
        """
        answer = await self._fcall(
            functions.CLAIM,
            self._worker_id,
            codec.encode(info),
            slots,
            info.kv_cache_tokens,
            info.adapter_slots,
            int(ready),
        )
        return list(_decoded(answer))

    async def post_adapters(
        self, changes: Mapping[str, AdapterLevel | None], load_us: Mapping[str, int]
    ) -> None:
        """Report how near this worker has adapters (by their opaque names) where that has changed;
        None: it has one no more; and of those that were loaded since, for how many microseconds the
        engine stood still for that. After each registration the scheduler knows of none. Raises as
        `claim` does, a connection error rather than waiting: a post may be repeated."""
        arguments: list[str | int] = []
        for adapter, level in changes.items():
            arguments += (adapter, int(level or 0), load_us.get(adapter, 0))
        if arguments:
            await self._fcall(functions.POST_ADAPTERS, self._worker_id, "", *arguments)

    async def report_progress(
        self,
        info: WorkerInfo,
        progress: Iterable[Progress],
        *,
        step_us: int = 0,
    ) -> None:
        """Report to the scheduler how many tokens the open requests have actually taken, in place
        of its estimates, and how long an engine step takes (microseconds, 0: unknown). Renews the
        lease; raises as `claim` does."""
        lines = "".join(
            f"{each.request_id} {each.attempt} {each.prompt_tokens} {each.completion_tokens}\n"
            for each in progress
        )
        await self._fcall(
            functions.REPORT_PROGRESS,
            self._worker_id,
            codec.encode(info),
            step_us,
            lines,
        )

    async def lost_messages(self) -> list[InboxMessage]:
        """Return every attempt that Redis believes this worker holds, after a broken connection: an
        answer or a popped message may have been lost with it. Otherwise return nothing, at no cost.
        Raises a connection error if Redis is away."""
        if not self._may_have_lost_messages:
            return []
        messages = list(_decoded(await self._fcall(functions.HELD, self._worker_id)))
        self._may_have_lost_messages = False
        return messages

    async def inbox(self) -> AsyncIterator[InboxMessage]:
        """Yield assignments and cancellations as they come, for ever; survives Redis restarts."""

        async def read() -> Any:
            # The outer limit notices a connection that died without a word.
            async with asyncio.timeout(2 * INBOX_BLOCK_SECONDS):
                return await self._inbox.blmpop(
                    INBOX_BLOCK_SECONDS, 1, self._inbox_key, direction="LEFT", count=INBOX_BATCH
                )

        while True:
            answer = await self._retry(read)
            if answer is not None:
                for message in _decoded(answer[1]):
                    yield message

    async def finish(
        self,
        entry: UsageEntry,
        *,
        origin: str = "",
        is_dead_letter: bool = False,
        last_frames: bytes = b"",
    ) -> Accepted | Refused:
        """Ask whether this attempt may end its request: the one point of truth. Requests that end
        in the same engine step share a round trip. `origin` is where the record is kept. A dead
        letter is kept for operators, `last_frames` for the gateway. Raises `UnknownRequest` if
        Redis has lost the request."""
        return await self._finishes.add(
            finish_arguments(
                entry, is_dead_letter=is_dead_letter, origin=origin, last_frames=last_frames
            )
        )

    async def requeue(
        self, request_id: str, attempt: int, reason: RetryReason, envelope: Envelope | None
    ) -> Requeued:
        """Hand an attempt's request back to the queue, with this envelope if there is one. A
        repeated call is answered `STALE`."""
        arguments = requeue_arguments(request_id, attempt, reason, envelope)

        async def call() -> list[Any]:
            answer: list[Any] = await self._fcall(functions.REQUEUE, *arguments)
            return answer

        return Requeued((await self._retry(call))[0].decode())

    async def live_gateways(self, gateway_ids: Iterable[str]) -> set[str]:
        """Return those of the gateways that have a heartbeat; and see what time it is."""
        asked = list(gateway_ids)
        await read_clock(self.redis)
        pipeline = self.redis.pipeline(transaction=False)
        for gateway_id in asked:
            pipeline.exists(keys.gateway_heartbeat(gateway_id))
        answers = await pipeline.execute()
        return {gateway_id for gateway_id, alive in zip(asked, answers, strict=True) if alive}

    async def deregister(self) -> None:
        """Leave the pool after a drain; a worker that just dies is removed when its lease expires.
        Raises a connection error if Redis is away."""
        await self._fcall(functions.LEAVE, self._worker_id)

    async def close(self) -> None:
        await self._finishes.close()
        await self._inbox.aclose()
        await self.redis.aclose()

    async def _send_finishes(self, batch: Sequence[FinishArguments]) -> list[Any]:
        """Return an answer for each call; those that Redis refuses for the time being are repeated
        until it gives one."""
        answers: list[Any] = [None] * len(batch)
        left = list(range(len(batch)))

        async def call() -> None:
            pipeline = self.redis.pipeline(transaction=False)
            for index in left:
                pipeline.fcall(functions.FINISH, 1, self._pool, *batch[index])
            for index, answer in zip(
                left, await pipeline.execute(raise_on_error=False), strict=True
            ):
                answers[index] = answer
            refused = [index for index in left if is_transient(answers[index])]
            left[:] = refused
            if refused:
                raise answers[refused[0]]

        await self._retry(call)
        return answers

    async def _fcall(self, function: str, *arguments: str | bytes | int) -> Any:
        try:
            return await self.redis.fcall(function, 1, self._pool, *arguments)
        except Exception as error:
            if code_of(error) == "FENCED":
                raise Fenced(str(error)) from error
            if code_of(error) == "UNKNOWN":
                raise UnknownWorker(str(error)) from error
            if code_of(error) == "MISMATCH":
                raise WrongModel(
                    f"The pool {self.pool_name} did not take this worker: "
                    f"{str(error).removeprefix('MISMATCH ')}. To have the pool serve this instead: "
                    f"`manage.py pin_pool {self.pool_name} --next`."
                ) from error
            self._may_have_lost_messages |= is_transient(error)
            raise

    async def _retry(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Return the answer of `call` as soon as Redis gives one."""
        delay = FIRST_RETRY_SECONDS
        logged: str | None = None
        while True:
            try:
                answer = await call()
            except Exception as error:
                if not is_transient(error):
                    raise
                self._may_have_lost_messages = True
                reason = str(error) or type(error).__name__
            else:
                if logged is not None:
                    _log.info("redis_is_back", worker_id=self._worker_id)
                return answer
            if reason != logged:
                _log.warning("waiting_for_redis", worker_id=self._worker_id, reason=reason)
                logged = reason
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_SECONDS)


def _decoded(messages: Iterable[bytes]) -> Iterable[InboxMessage]:
    for message in messages:
        try:
            yield codec.decode_inbox(message)
        except WireFormatError as error:
            _log.error("inbox_message_dropped", error=str(error))
