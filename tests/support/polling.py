"""Waiting on a condition. The only place in the tests that sleeps."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

_T = TypeVar("_T")
_PAUSE_SECONDS = 0.01


@overload
async def eventually(
    predicate: Callable[[], Awaitable[_T]], timeout_seconds: float = 5.0
) -> _T: ...
@overload
async def eventually(predicate: Callable[[], _T], timeout_seconds: float = 5.0) -> _T: ...
async def eventually(predicate: Callable[[], Any], timeout_seconds: float = 5.0) -> Any:
    """What `predicate`, plain or async, returns as soon as that is true, or fails in time."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = predicate()
        result = await answer if inspect.isawaitable(answer) else answer
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(predicate, timeout_seconds, result))
        await asyncio.sleep(_PAUSE_SECONDS)


async def as_soon_as(predicate: Callable[[], bool], timeout_seconds: float = 30.0) -> None:
    """Look at every turn of the event loop, where an engine may be steps ahead by the next look of
    `eventually`."""
    async with asyncio.timeout(timeout_seconds):
        while not predicate():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


def eventually_sync(predicate: Callable[[], _T], timeout_seconds: float = 5.0) -> _T:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        result = predicate()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(predicate, timeout_seconds, result))
        time.sleep(_PAUSE_SECONDS)


def _too_late(predicate: object, timeout_seconds: float, result: object) -> str:
    name = getattr(predicate, "__qualname__", repr(predicate))
    return f"{name} was still {result!r} after {timeout_seconds} s"
