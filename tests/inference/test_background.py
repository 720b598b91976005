"""Background tasks end when their owner stops, whatever they do with a cancellation."""

import asyncio

from inference.background import Background


async def test_a_task_that_a_cancellation_was_swallowed_in_is_cancelled_again() -> None:
    background, swallowed = Background(), 0
    has_begun = asyncio.Event()

    async def swallow_one() -> None:
        nonlocal swallowed
        has_begun.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed:
                    raise
                swallowed += 1

    background.supervise(swallow_one, name="stubborn")
    await has_begun.wait()
    async with asyncio.timeout(5):
        await background.stop()
    assert swallowed == 1


async def test_stopping_with_nothing_under_way_returns_at_once() -> None:
    async with asyncio.timeout(5):
        await Background().stop()
