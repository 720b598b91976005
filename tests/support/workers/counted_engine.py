"""An engine under the contract, and the sum of what its results reported."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gpu_workers.engine import BeginTexts, Engine, Output, Result
from gpu_workers.protocol.messages import Envelope
from tests.support.polling import eventually


class CountedEngine:
    """Whatever a clause asks of it, its own count has to be what its results reported."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reported = engine.load().generated_tokens
        self._is_whole = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        async for item in self._engine.generate(envelope, begin_texts):
            if isinstance(item, Result):
                resumed = len(envelope.resumed_token_ids)
                self._reported += max(0, item.usage.completion_tokens - resumed)
            yield item
        # Only when its engine is lost is a task cancelled, and nobody asks what was generated.
        task = asyncio.current_task()
        self._is_whole = self._is_whole and task is not None and not task.cancelling()

    async def adds_up(self) -> None:
        """An engine may count its last step a little after that step's outputs."""
        if self._is_whole:
            await eventually(lambda: self._engine.load().generated_tokens == self._reported)
