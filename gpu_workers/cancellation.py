"""Ending tasks for certain."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

ASK_AGAIN_SECONDS: Final = 0.2


async def cancel_and_wait(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    """Cancel until every task has ended.

    Once is not enough: Python 3.11's `wait_for`, which redis-py sends with, swallows a cancellation
    that coincides with the end of what it waits for. If this wait is itself cancelled, it raises
    `CancelledError` only after all tasks have ended, so that nothing runs on unseen.
    """
    pending = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=ASK_AGAIN_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = error
        done = {task for task in pending if task.done()}
        pending -= done
        for task in done:
            if not task.cancelled():
                task.exception()  # seen: whoever started it has logged it
    if cancelled is not None:
        raise cancelled
