"""Both sides of dispatch over a real Redis, call by call: a gateway's and a worker's."""

import time
from typing import Any, cast

from redis.asyncio import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import (
    Assignment,
    Cancellation,
    Outcome,
    Preemption,
    Resend,
)
from inference.dispatch.queue import Dispatch, usage_entry
from tests.support.gateways.cast import POOL, an_envelope, encoded_worker_info

WORKER = "worker-1#a"

AboutRequest = Assignment | Cancellation | Preemption | Resend


class Workers:
    """The worker's side of dispatch, as bare function calls."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def register(self, worker_id: str = WORKER) -> list[bytes]:
        name = worker_id.partition("#")[0]
        info = encoded_worker_info(worker_id)
        fenced: list[bytes] = await self._call(functions.REGISTER, worker_id, name, info)
        return fenced

    async def claim(
        self, worker_id: str = WORKER, *, slots: int = 4, ready: bool = True
    ) -> list[AboutRequest]:
        info = encoded_worker_info(worker_id)
        answer = await self._call(functions.CLAIM, worker_id, info, slots, 0, 0, int(ready))
        return _decoded(answer)

    async def held(self, worker_id: str = WORKER) -> list[AboutRequest]:
        answer = await self._call(functions.HELD, worker_id)
        return _decoded(answer)

    async def inbox(self, worker_id: str = WORKER) -> list[AboutRequest]:
        key = keys.pool_inbox(POOL, worker_id)
        messages = cast(list[bytes], await self.redis.lrange(key, 0, -1))
        await self.redis.delete(key)
        return _decoded(messages)

    async def die(self, worker_id: str = WORKER, *, ago_ms: int = 60_000) -> None:
        now_ms = time.time_ns() // 1_000_000
        await self.redis.zadd(keys.pool_heartbeats(POOL), {worker_id: now_ms - ago_ms})

    async def _call(self, function: str, *arguments: Any) -> Any:
        return await self.redis.fcall(function, 1, keys.pool_prefix(POOL), *arguments)


def _decoded(messages: list[bytes]) -> list[AboutRequest]:
    found = map(codec.decode_inbox, messages)
    return [message for message in found if isinstance(message, AboutRequest)]


async def enqueue(dispatch: Dispatch, request_id: str, **changes: Any) -> Any:
    envelope = an_envelope(request_id=request_id, **changes)
    return await dispatch.enqueue(envelope, max_queue_length=10)


async def finish(
    dispatch: Dispatch, request_id: str, attempt: int, outcome: Outcome = Outcome.COMPLETED
) -> bool:
    envelope = an_envelope(request_id=request_id)
    entry = usage_entry(envelope, attempt=attempt, outcome=outcome, error_code=None)
    return await dispatch.finish(entry)
