"""Lets a tenant have a few requests rendered at once, and no more.

Rendering a prompt takes the worker's loop some milliseconds: the template, the tokenizer, vLLM's
checks. When a hundred requests of one tenant come at once, which is what the end of a hundred equal
streams leads to, each step of another's prompt would have to wait for theirs.
"""

import asyncio
from typing import Final
from weakref import WeakValueDictionary

# One on the loop while the other is with the tokenizer's thread.
MOST_OF_A_TENANT: Final = 2


class RenderTurns:
    """The turns of one worker's tenants; of those that have none under way, nothing is kept."""

    def __init__(self) -> None:
        self._tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def begin(self, tenant_id: str) -> asyncio.Semaphore:
        """Wait for a turn of this tenant; `release` what is returned once the prompt is there."""
        turn = self._tenants.get(tenant_id)
        if turn is None:
            turn = self._tenants[tenant_id] = asyncio.Semaphore(MOST_OF_A_TENANT)
        await turn.acquire()
        return turn
