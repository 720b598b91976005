"""Calls the Lua functions that live inside Redis, and brings them back when Redis has lost them.

Where Redis has a user per role the control plane alone may load them. A gateway then waits for that
as it waits for the policy snapshot, which a Redis that restarted empty has lost with them.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from gpu_workers.protocol import functions
from gpu_workers.protocol.redis_errors import is_function_missing, is_transient
from inference.lua_constants import ADMISSION_CONSTANTS, DISPATCH_CONSTANTS, LuaValue, prelude
from inference.redis_batches import Command, CommandBatches

_log = structlog.get_logger(__name__)

_WORD: Final = re.compile(r"\w+")
# At the outermost level: `local function f`, `local X =`, `local x, y`.
_DECLARATION: Final = re.compile(
    r"^local (?:function (?=(?P<function>\w+)\()|(?=(?P<value>\w+) =)"
    r"|(?P<names>[\w, ]+\b)(?: +--.*)?$)",
    re.MULTILINE,
)

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
    name=functions.ADMISSION_LIBRARY,
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
    name=functions.DISPATCH_LIBRARY,
    constants=DISPATCH_CONSTANTS,
    files=(
        "dispatch/lua/shares.lua",
        "dispatch/lua/choice.lua",
        "dispatch/lua/gateways.lua",
        "dispatch/lua/workers.lua",
        "dispatch/lua/dead.lua",
        "dispatch/lua/registration.lua",
        "dispatch/lua/loads.lua",
        "dispatch/lua/adapters.lua",
        "dispatch/lua/prefetch.lua",
        "dispatch/lua/looks.lua",
        "dispatch/lua/turns.lua",
        "dispatch/lua/slots.lua",
        "dispatch/lua/waits.lua",
        "dispatch/lua/payloads.lua",
        "dispatch/lua/usage.lua",
        "dispatch/lua/attempts.lua",
        "dispatch/lua/ends.lua",
        "dispatch/lua/dispatch.lua",
    ),
)
LIBRARIES: Final = (ADMISSION, DISPATCH)


def library_text(library: LuaLibrary) -> str:
    """Return the text of a library that Redis loads: each file a block, so that what no other file
    uses, and constants that this one does not use, do not count among the 200 local variables that
    Lua allows at a time."""
    folder = Path(__file__).parent
    texts = [(folder / file).read_text(encoding="utf-8") for file in library.files]
    words = [set(_WORD.findall(text)) for text in texts]
    blocks = [f"#!lua name={library.name}"]
    for index, text in enumerate(texts):
        others = set().union(*words[:index], *words[index + 1 :])
        used = sorted(library.constants.keys() & words[index])
        constants = {name: library.constants[name] for name in used}
        blocks.append(_block(text, others, prelude(constants)))
    return "\n".join(blocks)


def _block(text: str, others: Set[str], constants: str) -> str:
    """Return a file as a block that begins with constants, and before it the names of it that other
    files use."""
    shared: list[str] = []

    def declare(found: re.Match[str]) -> str:
        names = (found["function"] or found["value"] or found["names"]).split(", ")
        if others.isdisjoint(names):
            return found[0]
        shared.extend(names)
        return "function " if found["function"] else ""

    block = _DECLARATION.sub(declare, text)
    head = f"local {', '.join(shared)} do" if shared else "do"
    return f"{head}\n{constants}{block}\nend"


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

    async def call_each(
        self, function: str, calls: Sequence[Call]
    ) -> list[tuple[int, ResponseError]]:
        """Call a function with the key and arguments of each call, in one round trip; it must be
        idempotent. Return the positions of the calls that the function fails on, with its errors:
        they keep no other from being made. What keeps all of them is raised, as by `call`."""
        failed = []
        answers = await self._answers(*(_fcall(function, *call) for call in calls))
        for position, answer in enumerate(answers):
            if isinstance(answer, ResponseError) and _is_of_one_call(answer):
                failed.append((position, answer))
            elif isinstance(answer, Exception):
                raise answer
        return failed

    async def _run(self, *commands: Command) -> list[Any]:
        """Run commands. Raises the first error among their answers."""
        answers = await self._answers(*commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def _answers(self, *commands: Command) -> list[Any]:
        """Run commands, and where the functions are missing run them once more after they were
        loaded. Errors stand among the answers."""
        answers = await self._batches.run(*commands)
        if any(map(is_function_missing, answers)) and await self._reload():
            answers = await self._batches.run(*commands)
        return answers

    async def _reload(self) -> bool:
        is_loaded = await self.load()
        if is_loaded:
            _log.warning("redis_functions_reloaded", library=self._library.name)
        return is_loaded


def _is_of_one_call(error: ResponseError) -> bool:
    """Return whether an error is of what a call was about, and not of Redis or of who calls."""
    return not (is_transient(error) or isinstance(error, (NoPermissionError, AuthenticationError)))


def _fcall(function: str, *key_and_arguments: str | bytes | int) -> Command:
    return ("FCALL", function, 1, *key_and_arguments)
