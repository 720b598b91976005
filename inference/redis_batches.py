"""Commands that are asked for at the same time travel to Redis together.

A round trip costs this process far more than a command: a connection to take, a write, a wake-up.
So one batch is under way at a time, and what is asked for meanwhile goes with the next: alone where
little is asked for, with many others under load. What is large, as the payload of a long prompt,
goes alone at once: nobody waits behind it.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis

Command = tuple[str | bytes | int, ...]

# Whoever came first waits for the last of its batch.
MOST_OF_A_BATCH: Final = 64
LARGEST_SHARED_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Asked:
    """Commands of one caller, which run one right after the other."""

    commands: tuple[Command, ...]
    answers: "asyncio.Future[list[Any]]"


class CommandBatches:
    """The commands of one client, in the order in which they were asked for."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: deque[_Asked] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def run(self, *commands: Command) -> list[Any]:
        """Return the answer to each command, which may be an error. Raises that of the connection,
        after which any of them may have been run; they must be safe to repeat. Whoever stops
        waiting may find that they were run."""
        is_large = sum(map(_size, commands)) > LARGEST_SHARED_BYTES
        return await (self._pipelined(commands) if is_large else self._share(commands))

    def _share(self, commands: tuple[Command, ...]) -> "asyncio.Future[list[Any]]":
        answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(commands, answers))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all(), name="redis-batches")
        return answers

    async def _send_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # let others that the same moment woke join
            batch = self._next_batch()
            try:
                await self._send(batch)
            except BaseException as error:
                self._fail(batch, error)
                if not isinstance(error, Exception):
                    raise

    def _next_batch(self) -> list[_Asked]:
        batch: list[_Asked] = []
        commands = 0
        while self._waiting and commands < MOST_OF_A_BATCH:
            asked = self._waiting.popleft()
            if not asked.answers.done():
                batch.append(asked)
                commands += len(asked.commands)
        return batch

    async def _send(self, batch: list[_Asked]) -> None:
        answers = iter(await self._pipelined(each for asked in batch for each in asked.commands))
        for asked in batch:
            own = [next(answers) for _ in asked.commands]
            if not asked.answers.done():
                asked.answers.set_result(own)

    async def _pipelined(self, commands: Iterable[Command]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute(raise_on_error=False)

    def _fail(self, batch: list[_Asked], error: BaseException) -> None:
        """Give everybody the error; to be cancelled is the end of all that waits, too."""
        if not isinstance(error, Exception):
            batch = [*batch, *self._waiting]
            self._waiting.clear()
        for asked in batch:
            if asked.answers.done():
                continue
            if isinstance(error, Exception):
                asked.answers.set_exception(error)
            else:
                asked.answers.cancel()


def _size(command: Command) -> int:
    """Return about how many bytes the texts of a command have."""
    return sum(len(each) for each in command if not isinstance(each, int))
