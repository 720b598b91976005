"""Looks, for all connections of a process at once, whether their callers may still go on."""

import asyncio
from typing import Final, Protocol

from redis.exceptions import RedisError

from gpu_workers.protocol.policy import Caller, Scope
from inference.admission.gate import Admission
from inference.background import Background
from inference.errors import Forbidden, InferenceError, Unauthenticated, Unavailable

ACCESS_SECONDS: Final = 1.0
# Of one turn of the event loop, which has streams to serve meanwhile.
_CHECKS_AT_ONCE: Final = 32


class Connection(Protocol):
    """An open connection, which stands for a caller at an address."""

    @property
    def caller(self) -> Caller: ...

    @property
    def address(self) -> str | None: ...

    async def end_refused(self, error: InferenceError) -> None: ...


class AccessWatch:
    """One task for all connections: one for each would cost more than the connections do."""

    def __init__(self, admission: Admission, background: Background) -> None:
        self._admission = admission
        self._background = background
        self._connections: set[Connection] = set()
        self._is_running = False

    def watch(self, connection: Connection) -> None:
        """Watch a connection until it is forgotten, or was refused."""
        self._connections.add(connection)
        if not self._is_running:
            self._is_running = True
            self._background.supervise(self._run, name="websocket-access")

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ACCESS_SECONDS)
            await self._check_all()

    async def _check_all(self) -> None:
        refusals: dict[tuple[int, str | None], InferenceError | None] = {}
        for connection in list(self._connections):
            asked = id(connection.caller), connection.address
            if asked not in refusals:
                if len(refusals) % _CHECKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                refusals[asked] = await self._refusal_of(connection)
            error = refusals[asked]
            if error is not None and connection in self._connections:
                self._connections.discard(connection)
                self._background.spawn(connection.end_refused(error), name="websocket-refused")

    async def _refusal_of(self, connection: Connection) -> InferenceError | None:
        try:
            await self._admission.revalidate(
                connection.caller, address=connection.address, scope=Scope.INFERENCE
            )
        except (Unauthenticated, Forbidden) as error:
            return error
        except (Unavailable, RedisError, OSError):
            return None  # nobody can tell just now
        return None
