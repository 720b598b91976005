import asyncio
from contextlib import suppress

import pytest

from gpu_workers.cancellation import cancel_and_wait


async def ends_at_the_second_cancellation() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    task = asyncio.create_task(ends_at_the_second_cancellation())
    await asyncio.sleep(0)
    await cancel_and_wait([task])
    assert task.cancelled()


async def test_who_is_cancelled_while_it_ends_tasks_leaves_none_behind() -> None:
    task = asyncio.create_task(ends_at_the_second_cancellation())
    await asyncio.sleep(0)
    ending = asyncio.create_task(cancel_and_wait([task]))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert task.cancelled()
