"""Who holds which request, asked of its pool where a stream does not know."""

import asyncio
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from inference.pools import alone
from inference.streaming.token_stream import TokenStream

# A pool that has lost a request knows it again when its worker has adopted it.
ASK_AGAIN_SECONDS: Final = 0.25


class RequestOwners:
    """Asks for all streams that were doubted in one turn of the loop at once. An assignment tells
    of itself who has the request: what is asked for here has waited, or has another attempt."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._doubted: dict[str, TokenStream] = {}
        self._is_due = asyncio.Event()

    def ask(self, stream: TokenStream) -> None:
        """Have the stream told who holds its request. Returns at once."""
        self._doubted[stream.request_id] = stream
        self._is_due.set()

    async def run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            doubted, self._doubted = list(self._doubted.values()), {}
            try:
                await self._tell(doubted)
            except (RedisError, OSError):
                self._ask_later(doubted)

    async def _tell(self, streams: list[TokenStream]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for stream in streams:
            pipeline.hmget(keys.pool_request(stream.pool, stream.request_id), "attempt", "worker")
        answers = await pipeline.execute(raise_on_error=False)
        for stream, answer in zip(streams, answers, strict=True):
            with alone(stream.pool):
                if isinstance(answer, Exception):
                    raise answer
                attempt, worker_id = answer
                if attempt is None:
                    self._ask_later([stream])
                else:
                    stream.note_holder(int(attempt), worker_id.decode())

    def _ask_later(self, streams: list[TokenStream]) -> None:
        for stream in streams:
            if not stream.has_ended:
                asyncio.get_running_loop().call_later(ASK_AGAIN_SECONDS, self.ask, stream)
