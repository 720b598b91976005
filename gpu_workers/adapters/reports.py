"""What the dispatcher is told of a worker's adapters: changes alone, each as soon as it is so."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from gpu_workers.adapters.sources import AdapterSources
from gpu_workers.protocol.adapters import AdapterBase, AdapterEffect, AdapterLevel
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.transport import UnknownWorker

# Of one call, which Redis runs while everybody else waits.
CHANGES_AT_ONCE: Final = 500
POST_AGAIN_SECONDS: Final = 0.5

# What Redis has after a call whose answer was lost: another level than any.
_UNKNOWN: Final = 0

# `Transport.post_adapters`: adapter -> its level, None where the worker has it no more; adapter ->
# microseconds that its load took of the engine.
Post = Callable[[Mapping[str, AdapterLevel | None], Mapping[str, int]], Awaitable[None]]

_log = structlog.get_logger("gpu_workers.adapters.reports")


class AdapterReports:
    """Keeps what Redis has of one worker as `level_of` has it. What changes while a call is under
    way shares the next one."""

    def __init__(
        self,
        post: Post,
        *,
        sources: AdapterSources,
        level_of: Callable[[str], AdapterLevel | None],
        effects: Callable[[], Mapping[str, AdapterEffect]],
        base: AdapterBase,
    ) -> None:
        self._post = post
        self._sources = sources
        self._level_of = level_of
        self._effects = effects
        self._base = base
        self._is_base_posted = False
        self._registration = 0
        self._posted: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        self._load_us: dict[str, int] = {}
        self._found: dict[str, AdapterEffect] = {}
        self._wake = asyncio.Event()
        self._wake.set()

    def changed(self, name: str) -> None:
        """Note that an adapter's level may be another one."""
        self._changed[name] = None
        self._wake.set()

    def loaded(self, name: str, seconds: float) -> None:
        """Post an adapter's level, and for how long the engine stood still to load it: who asked
        for it is charged for that. A post that is repeated may charge it twice."""
        self._load_us[name] = round(seconds * 1e6)
        self.missed(name)

    def missed(self, name: str) -> None:
        """Post an adapter's level even if it is the one before: the scheduler expects another."""
        self._posted[name] = _UNKNOWN
        self.changed(name)

    def found(self, name: str, effect: AdapterEffect) -> None:
        """Report what an adapter does: to the control plane, which puts it on record."""
        self._found[name] = effect
        self._wake.set()

    def resync(self) -> None:
        """Post everything again: Redis has lost it."""
        self._changed |= dict.fromkeys(self._posted)
        self._posted.clear()
        self._found |= self._effects()
        self._is_base_posted = False
        self._registration += 1
        self._wake.set()

    async def run(self) -> None:
        """Post for ever. Raises what Redis answers and waiting does not mend, as `Fenced`."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._post_all()
            except UnknownWorker:
                continue  # registering again calls `resync`
            except Exception as error:
                if not is_transient(error):
                    raise
                _log.warning("adapters_not_posted", error=str(error) or type(error).__name__)
                await asyncio.sleep(POST_AGAIN_SECONDS)
                self._wake.set()

    async def _post_all(self) -> None:
        registration = self._registration
        if not self._is_base_posted:
            await self._sources.publish_base(self._base)
            self._is_base_posted = registration == self._registration
        if self._found:
            found = dict(self._found)
            await self._sources.publish_effects(found)
            self._found = {name: each for name, each in self._found.items() if name not in found}
        while self._changed and registration == self._registration:
            taken = list(self._changed)[:CHANGES_AT_ONCE]
            for name in taken:
                del self._changed[name]
            levels = {name: self._level_of(name) for name in taken}
            await self._post_changes(
                {name: at for name, at in levels.items() if at != self._posted.get(name)}
            )

    async def _post_changes(self, changes: Mapping[str, AdapterLevel | None]) -> None:
        if not changes:
            return
        registration, is_posted = self._registration, False
        load_us = {name: us for name in changes if (us := self._load_us.get(name))}
        try:
            await self._post(changes, load_us)
            for name in load_us:
                self._load_us.pop(name, None)
            is_posted = registration == self._registration
        finally:
            for name, level in changes.items():
                if not is_posted:
                    self._posted[name] = _UNKNOWN
                    self._changed[name] = None
                elif level is None:
                    self._posted.pop(name, None)
                else:
                    self._posted[name] = level
