"""One request's frames and, where it is handed back, the envelope it waits with."""

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Envelope
from tests.support.polling import eventually
from tests.support.workers.listening_gateway import FakeGateway


class StreamReader:
    """Reads one request's frames as they come, attempt by attempt."""

    def __init__(self, gateway: FakeGateway, request_id: str) -> None:
        self._gateway, self._request_id = gateway, request_id

    def token_ids(self, attempt: int) -> list[int]:
        return [
            token_id
            for delta in self._gateway.deltas.get(self._request_id, [])
            if delta.attempt == attempt
            for token_id in delta.token_ids
        ]

    async def wait_for(self, attempt: int, tokens: int) -> None:
        async def has_come() -> bool:
            await self._gateway.read()
            return len(self.token_ids(attempt)) >= tokens

        await eventually(has_come)


async def waiting_envelope(redis: Redis, request_id: str) -> Envelope:
    """That of a request which waits in the queue again."""

    async def waits() -> bool:
        return await redis.zscore(keys.pool_queue("sim"), request_id) is not None

    await eventually(waits)
    stored = await redis.hget(keys.pool_request("sim", request_id), "envelope")
    assert isinstance(stored, bytes)
    return codec.decode_envelope(stored)
