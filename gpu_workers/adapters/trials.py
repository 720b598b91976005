"""Tries an adapter out before any request may use it, where nobody knows yet what it does."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog

from gpu_workers.engine import AdapterRefused, Engine, EngineDied
from gpu_workers.protocol.adapters import AdapterEffect

# Beyond what an engine takes to give up by itself: a request may wait for this.
TRIAL_SECONDS: Final = 10.0
# What was found is told again to a Redis that has lost it, of the latest.
KEPT: Final = 1024

_log = structlog.get_logger("gpu_workers.adapters.trials")


class AdapterTrials:
    """What one engine has found of adapters. `on_found` is called with each."""

    def __init__(self, engine: Engine, *, on_found: Callable[[str, AdapterEffect], None]) -> None:
        self._engine = engine
        self._on_found = on_found
        self._found: OrderedDict[str, AdapterEffect] = OrderedDict()

    async def try_out(self, name: str) -> None:
        """Find out what a loaded adapter does, once. Where that cannot be told it stays unknown,
        and the adapter is served. Raises `AdapterRefused` for one that can answer nobody, and
        `EngineDied`."""
        effect = self._found.get(name) or await self._probe(name)
        if effect is AdapterEffect.NOT_FINITE:
            raise AdapterRefused("its answers to probe prompts are not finite")

    def found(self) -> dict[str, AdapterEffect]:
        """Return what was found, of the latest."""
        return dict(self._found)

    async def _probe(self, name: str) -> AdapterEffect | None:
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                effect = await self._engine.probe_adapter(name)
        except EngineDied:
            raise
        except Exception as error:  # noqa: BLE001 - what cannot be told must keep nobody waiting
            _log.warning("adapter_not_probed", adapter=name, reason=str(error) or repr(error))
            return None
        seconds = round(clock() - started, 3)
        _log.info("adapter_probed", adapter=name, effect=effect.name.lower(), seconds=seconds)
        self._found[name] = effect
        if len(self._found) > KEPT:
            self._found.popitem(last=False)
        self._on_found(name, effect)
        return effect
