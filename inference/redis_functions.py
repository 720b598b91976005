"""Calls the Lua functions that live inside Redis, and brings them back when Redis has lost them.

Where Redis has a user per role the control plane alone may load them. A gateway then waits for that
as it waits for the policy snapshot, which a Redis that restarted empty has lost with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from gpu_workers.protocol import keys
from gpu_workers.protocol.redis_errors import is_function_missing
from inference.lua_constants import ADMISSION_CONSTANTS, DISPATCH_CONSTANTS, LuaValue, prelude
from inference.redis_batches import Command, CommandBatches

_log = structlog.get_logger(__name__)

# A key, then arguments.
Call = tuple[str | bytes | int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LuaLibrary:
    """What a library is made of: constants that Python goes by too, and files in their order. Redis
    knows no `require`, so all of it is loaded as one text."""

    name: str
    constants: Mapping[str, LuaValue]
    files: tuple[str, ...]


ADMISSION: Final = LuaLibrary(
    name=keys.ADMISSION_LIBRARY,
    constants=ADMISSION_CONSTANTS,
    files=(
        "admission/windows.lua",
        "admission/counters.lua",
        "admission/limits.lua",
        "admission/admission.lua",
        "admission/credit.lua",
    ),
)
DISPATCH: Final = LuaLibrary(
    name=keys.DISPATCH_LIBRARY,
    constants=DISPATCH_CONSTANTS,
    files=(
        "dispatch/shares.lua",
        "dispatch/choice.lua",
        "dispatch/workers.lua",
        "dispatch/adapters.lua",
        "dispatch/slots.lua",
        "dispatch/usage.lua",
        "dispatch/attempts.lua",
        "dispatch/dispatch.lua",
    ),
)
LIBRARIES: Final = (ADMISSION, DISPATCH)


def library_text(library: LuaLibrary) -> str:
    """Return the text of a library that Redis loads."""
    folder = Path(__file__).parent
    head = f"#!lua name={library.name}\n{prelude(library.constants)}"
    return "\n".join(
        [head, *((folder / file).read_text(encoding="utf-8") for file in library.files)]
    )


class FunctionLibrary:
    """One Lua library beside its Python module, each function of which takes a single key. Calls
    that are made at the same time share a round trip."""

    def __init__(self, redis: Redis, library: LuaLibrary) -> None:
        self._redis = redis
        self._batches = CommandBatches(redis)
        self._library = library

    async def load(self) -> bool:
        """Put the library into Redis, in place of an earlier one of the same name. False: this user
        may not; the control plane does it."""
        try:
            await self._redis.function_load(library_text(self._library), replace=True)
        except NoPermissionError:
            return False
        return True

    async def call(self, function: str, key: str, *arguments: str | bytes | int) -> Any:
        """Return the function's answer. A Redis that restarted empty is given the library again,
        once; where this user may not, the first error stands until the control plane has done
        it."""
        (answer,) = await self._run(_fcall(function, key, *arguments))
        return answer

    async def call_with(
        self, read: str, function: str, key: str, *arguments: str | bytes | int
    ) -> tuple[bytes | None, Any]:
        """Return what the string at the key `read` is just before the function runs, and then the
        answer of `call`; in one round trip."""
        value, answer = await self._run(("GET", read), _fcall(function, key, *arguments))
        return value, answer

    async def call_each(self, function: str, calls: Sequence[Call]) -> None:
        """Call a function with the key and arguments of each call, in one round trip; it must be
        idempotent. Otherwise as `call`."""
        await self._run(*(_fcall(function, *call) for call in calls))

    async def _run(self, *commands: Command) -> list[Any]:
        """Run commands, and where the functions are missing run them once more after they were
        loaded."""
        try:
            return await self._batches.run(*commands)
        except ResponseError as error:
            if not is_function_missing(error) or not await self._reload():
                raise
        return await self._batches.run(*commands)

    async def _reload(self) -> bool:
        is_loaded = await self.load()
        if is_loaded:
            _log.warning("redis_functions_reloaded", library=self._library.name)
        return is_loaded


def _fcall(function: str, *key_and_arguments: str | bytes | int) -> Command:
    return ("FCALL", function, 1, *key_and_arguments)
