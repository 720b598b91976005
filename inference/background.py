"""Tasks that outlive the call that started them: kept by reference, logged, ended together."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
_REPEAT_CANCEL_SECONDS: Final = 0.2


class Background:
    """The background tasks of one owner. asyncio itself keeps only weak references to tasks, so
    one that nobody holds can vanish under load."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something that ends by itself; an exception is logged."""
        self._keep(asyncio.create_task(_logged(work, name), name=name))

    def supervise(self, run: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Run something that never ends by itself; start it again, after a growing pause, whenever
        it raises or returns."""
        self._keep(asyncio.create_task(_supervised(run, name), name=name))

    async def stop(self) -> None:
        """Cancel what is left until all of it has ended. Once is not enough: Python 3.11's
        `wait_for`, which redis-py sends with, swallows a cancellation that meets the end of what it
        waits for, and a supervised task would go on for ever."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_REPEAT_CANCEL_SECONDS)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:  # noqa: BLE001 - nobody awaits it: the log is the last place to tell
        _log.exception("background_task_failed", task=name)


async def _supervised(run: Callable[[], Awaitable[None]], name: str) -> None:
    loop = asyncio.get_running_loop()
    pause = _FIRST_PAUSE_SECONDS
    while True:
        started_at = loop.time()
        try:
            await run()
            _log.error("background_task_returned", task=name)
        except Exception as error:  # noqa: BLE001 - whatever it was, start again
            _log.warning("background_task_restarts", task=name, reason=repr(error))
        if loop.time() - started_at > _LONGEST_PAUSE_SECONDS:
            pause = _FIRST_PAUSE_SECONDS
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
