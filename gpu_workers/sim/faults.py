"""What goes wrong in a simulated engine, for drills and tests."""

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SimFaults:
    """Each strikes once, after so many steps; 0: never."""

    # It lives, and steps no more
    hang_after_steps: int = 0
    # The event loop itself does nothing else for `block_seconds`
    block_after_steps: int = 0
    block_seconds: float = 0.0

    async def strike(self, steps: int) -> None:
        """Do what is due once the engine has done so many steps."""
        if steps == self.block_after_steps:
            time.sleep(self.block_seconds)  # noqa: ASYNC251 - that is the fault
        if steps == self.hang_after_steps:
            await asyncio.Event().wait()
