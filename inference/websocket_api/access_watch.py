"""Knows all connections of a process: how many a tenant may have, and whether callers may still go
on."""

import asyncio
from typing import Final, Protocol

from redis.exceptions import RedisError

from gpu_workers.protocol.policy import Caller, Scope
from inference.admission.gate import Admission
from inference.background import Background
from inference.errors import (
    Forbidden,
    InferenceError,
    TooManyWebsockets,
    Unauthenticated,
    Unavailable,
)

ACCESS_SECONDS: Final = 1.0
# Of one turn of the event loop, which has streams to serve meanwhile.
_CHECKS_AT_ONCE: Final = 32
_RETRY_SECONDS: Final = 5


class Connection(Protocol):
    """A connection, which stands for a caller at an address; not open yet while it is accepted."""

    @property
    def caller(self) -> Caller: ...

    @property
    def address(self) -> str | None: ...

    @property
    def is_open(self) -> bool: ...

    async def end_refused(self, error: InferenceError) -> None: ...


class AccessWatch:
    """One task for all connections: one for each would cost more than the connections do."""

    def __init__(self, admission: Admission, background: Background) -> None:
        self._admission = admission
        self._background = background
        self._connections: set[Connection] = set()
        self._is_running = False

    def watch(self, connection: Connection) -> None:
        """Watch a connection until it is forgotten, or was refused. Raises `TooManyWebsockets`."""
        self._check_room(connection.caller)
        self._connections.add(connection)
        if not self._is_running:
            self._is_running = True
            self._background.supervise(self._run, name="websocket-access")

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def _check_room(self, caller: Caller) -> None:
        tier, tenant_id = caller.tenant.tier, caller.tenant.tenant_id
        if tier.max_websockets is None:
            return
        present = sum(each.caller.tenant.tenant_id == tenant_id for each in self._connections)
        if present >= tier.max_websockets:
            raise TooManyWebsockets(
                f"Tier {tier.name} allows {tier.max_websockets} open websockets at a gateway, and "
                f"there are {present}. Close one, or send more requests on those that are open.",
                retry_after_seconds=_RETRY_SECONDS,
            )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ACCESS_SECONDS)
            await self._check_all()

    async def _check_all(self) -> None:
        refusals: dict[tuple[int, str | None], InferenceError | None] = {}
        for connection in [each for each in self._connections if each.is_open]:
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
