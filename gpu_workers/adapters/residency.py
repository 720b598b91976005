"""Which adapters are in the engine's memory: those that open requests use, pinned ones, and the
latest besides.

A request reaches the engine only while its adapter is loaded: it waits for that alone, beside the
others. What a request uses, or waits for, is never unloaded.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import structlog

from gpu_workers.adapters.supply import AdapterSupply
from gpu_workers.adapters.trials import AdapterTrials
from gpu_workers.adapters.unavailable import AdapterUnavailable
from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.engine import AdapterRefused, Engine, EngineDied, LoadableAdapter
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.protocol.adapters import AdapterLevel

# How long a request waits for its adapter, and for others to end where all that are loaded are in
# use; its client then asks again, and may find another worker.
WAIT_SECONDS: Final = 60.0
PREFETCHES_AT_ONCE: Final = 2
PREFETCHES_KEPT: Final = 256
# A refusal is remembered, so that whoever asks again and again costs no load each time.
REFUSED_SECONDS: Final = 60.0
REFUSALS_KEPT: Final = 1024

_Problem = AdapterUnavailable | AdapterRefused | EngineDied

_log = structlog.get_logger("gpu_workers.adapters.residency")


class _NoRoom(Exception):
    """All that is loaded is in use, and nobody waits for this one."""


class Residency:
    """The adapters in one engine's memory, at most `capacity`, and which of them have most likely
    one of its `slots`. `on_change` is called with each whose level may be another one now,
    `on_prefetch_settled` with each that nothing more is to be expected of, as it was loaded or
    refused before it was asked for, or was not loaded after all; `on_loaded` with each that was,
    and for how many seconds that kept the engine from its steps."""

    def __init__(
        self,
        *,
        engine: Engine,
        supply: AdapterSupply,
        trials: AdapterTrials,
        metrics: WorkerMetrics,
        capacity: int,
        slots: int,
        on_change: Callable[[str], None],
        on_prefetch_settled: Callable[[str], None],
        on_loaded: Callable[[str, float], None],
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._engine = engine
        self._supply = supply
        self._trials = trials
        self._metrics = metrics
        self._capacity = capacity
        self._most_slots = slots
        self._on_change = on_change
        self._on_prefetch_settled = on_prefetch_settled
        self._on_loaded = on_loaded
        self._wait_seconds = wait_seconds
        self._loaded: OrderedDict[str, Path] = OrderedDict()  # the least recently used first
        self._slots: OrderedDict[str, None] = OrderedDict()  # likewise
        self._pinned: frozenset[str] = frozenset()
        self._users: Counter[str] = Counter()  # open requests, those that wait too
        self._loads: dict[str, asyncio.Task[_Problem | None]] = {}
        self._on_trial: set[str] = set()  # loaded, and for nobody's use yet
        self._refused: dict[str, float] = {}
        self._wanted: deque[str] = deque(maxlen=PREFETCHES_KEPT)
        self._is_wanted = asyncio.Event()
        self._freed = asyncio.Event()
        self._turn = asyncio.Lock()  # whose load changes what the engine has

    def level_of(self, name: str) -> AdapterLevel | None:
        """Return how near an adapter is; None where it would have to be fetched."""
        if name in self._slots:
            return AdapterLevel.SLOT
        if self.is_loaded(name):
            return AdapterLevel.MEMORY
        return AdapterLevel.DISK if self._supply.has(name) else None

    def counts(self) -> tuple[int, int]:
        """Return how many adapters have most likely a slot, and how many are in memory."""
        return len(self._slots), len(self._loaded)

    @asynccontextmanager
    async def use(self, name: str, until: "asyncio.Future[None]") -> AsyncIterator[None]:
        """Keep an adapter loaded for the block, once it is. Where `until` is done first, the block
        begins without it. Raises `AdapterUnavailable`, `AdapterRefused` or `EngineDied`."""
        self._metrics.adapter_hit(self.level_of(name))
        self._users[name] += 1
        try:
            if not self.is_loaded(name):
                await self._wait_loaded(name, until)
            self._touch(name)
            yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
            self._touch(name)
            self._freed.set()

    def prefetch(self, name: str) -> None:
        """Load an adapter soon, if that takes none from a request. Of too many the latest count.
        The scheduler waits to hear of it, so what is loaded, or refused, is told again."""
        if self.is_loaded(name) or self._is_refused(name):
            self._on_prefetch_settled(name)
        elif name not in self._loads and name not in self._wanted:
            self._wanted.append(name)
            self._is_wanted.set()

    def is_loaded(self, name: str) -> bool:
        """Return whether requests may use it."""
        return name in self._loaded and name not in self._on_trial

    def loaded(self) -> set[str]:
        """Return what is in the engine's memory."""
        return set(self._loaded)

    async def unload_idle(self, names: Collection[str]) -> None:
        """Unload those of these that no request uses. Raises `EngineDied`."""
        for name in names:
            async with self._turn:
                if name in self._loaded and self._is_idle(name):
                    await self._unload(name)

    def pin(self, names: Collection[str]) -> None:
        """Have these, and no others, leave the memory last: for a request alone, and only where
        requests use all others."""
        self._pinned = frozenset(names)

    async def bring_pinned(self, name: str) -> None:
        """Load an adapter as a prefetch does, and wait for the outcome, whatever it is."""
        if not self.is_loaded(name) and not self._is_refused(name):
            await asyncio.wait({self._load_of(name)})

    async def prefetch_forever(self) -> None:
        while True:
            await self._is_wanted.wait()
            running = [task for name, task in self._loads.items() if not self._users[name]]
            if len(running) >= PREFETCHES_AT_ONCE:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            elif self._wanted:
                name = self._wanted.popleft()
                if name not in self._loaded and not self._is_refused(name):
                    self._load_of(name)
            else:
                self._is_wanted.clear()

    async def close(self) -> None:
        """End what is under way. The engine keeps what it has: it ends too."""
        await cancel_and_wait(list(self._loads.values()))

    async def _wait_loaded(self, name: str, until: "asyncio.Future[None]") -> None:
        if self._is_refused(name):
            raise AdapterRefused("the engine has refused it a moment ago")
        load = self._load_of(name)
        either: set[asyncio.Future[Any]] = {load, until}
        await asyncio.wait(either, timeout=self._wait_seconds, return_when=asyncio.FIRST_COMPLETED)
        if until.done():
            return
        if not load.done():
            raise AdapterUnavailable(f"it was not loaded in {self._wait_seconds:g} s")
        problem = AdapterUnavailable("the worker stops") if load.cancelled() else load.result()
        if problem is not None:
            raise problem.with_traceback(None)

    def _load_of(self, name: str) -> "asyncio.Task[_Problem | None]":
        """Return the one load of an adapter that is under way."""
        if name not in self._loads:
            self._loads[name] = asyncio.create_task(self._load(name), name=f"adapter:{name[:8]}")
        return self._loads[name]

    async def _load(self, name: str) -> _Problem | None:
        """Load an adapter; return why it is not, where a request waits for it."""
        problem: _Problem | None = None
        try:
            await self._bring(name)
        except (AdapterUnavailable, EngineDied) as error:
            problem = error
        except AdapterRefused as error:
            self._remember_refusal(name)
            problem = error
        except Exception as error:  # noqa: BLE001 - one adapter must not end the worker
            _log.exception("adapter_load_failed", adapter=name)
            problem = AdapterUnavailable(type(error).__name__)
        finally:
            del self._loads[name]
            if not self.is_loaded(name):
                self._on_prefetch_settled(name)
        if problem is not None:
            self._metrics.adapter_load_failed(is_refused=isinstance(problem, AdapterRefused))
            _log.warning("adapter_not_loaded", adapter=name, reason=str(problem))
        return problem

    async def _bring(self, name: str) -> None:
        """Load an adapter; one that nobody waits for only where that takes none from a request."""
        started = asyncio.get_running_loop().time()
        while True:
            if not self._users[name] and self._supply.has(name) and not self._has_room():
                return  # it is as near as it may come: nothing is opened for that
            opened = await self._supply.open(name)
            try:
                async with self._turn:
                    await self._make_room_for(name)
                    adapter = LoadableAdapter(name=name, folder=opened.folder)
                    before = self._engine.load().loading_seconds
                    await self._engine.load_adapter(adapter)
                    stood_still = self._engine.load().loading_seconds - before
                    self._loaded[name] = opened.folder
                    if opened.needs_probe:
                        self._on_trial.add(name)
                break
            except _NoRoom:
                await self._supply.drop(opened.folder)
                if not self._users[name]:
                    return
            except BaseException:
                await self._supply.drop(opened.folder)
                raise
        if opened.needs_probe:
            await self._try_out(name)
        seconds = asyncio.get_running_loop().time() - started
        self._metrics.adapter_loaded(seconds, is_fetched=opened.is_fetched)
        self._metrics.adapters_in_memory.set(len(self._loaded))
        self._on_loaded(name, stood_still)
        _log.info(
            "adapter_loaded",
            adapter=name,
            seconds=round(seconds, 3),
            is_fetched=opened.is_fetched,
        )

    async def _try_out(self, name: str) -> None:
        """Have a loaded adapter tried out, beside other loads; unload it at once if it is refused:
        whoever has the turn may wait for room."""
        try:
            await self._trials.try_out(name)
        except AdapterRefused:
            await self._unload(name)
            raise
        finally:
            self._on_trial.discard(name)
            self._freed.set()

    async def _make_room_for(self, name: str) -> None:
        """Unload until one more may be loaded; wait until a request ends where all are in use.
        Raises `_NoRoom` rather than wait for what nobody waits for."""
        while len(self._loaded) >= self._capacity:
            idle = [each for each in self._loaded if self._is_idle(each)]
            if (loose := self._loose()) is not None:
                await self._unload(loose)
            elif idle and self._users[name]:
                await self._unload(idle[0])
            elif self._users[name]:
                self._freed.clear()
                await self._freed.wait()
            else:
                raise _NoRoom

    def _has_room(self) -> bool:
        """Return whether one more may be loaded without taking one from a request or a pin."""
        return len(self._loaded) < self._capacity or self._loose() is not None

    def _loose(self) -> str | None:
        """Return the longest unused that neither a request nor a pin holds."""
        idle = (each for each in self._loaded if self._is_idle(each))
        return next((each for each in idle if each not in self._pinned), None)

    async def _unload(self, name: str) -> None:
        folder = self._loaded.pop(name)
        self._slots.pop(name, None)
        self._on_change(name)
        await self._engine.unload_adapter(name)
        await self._supply.drop(folder)
        self._metrics.adapter_evicted("memory")
        self._metrics.adapters_in_memory.set(len(self._loaded))

    def _touch(self, name: str) -> None:
        """Note that an adapter is used, and so has a slot: in place of the one that was longest
        unused, as in the engine."""
        if not self.is_loaded(name):
            return
        self._loaded.move_to_end(name)
        if name in self._slots:
            self._slots.move_to_end(name)
            return
        if len(self._slots) >= self._most_slots:
            unused = next((each for each in self._slots if not self._users[each]), None)
            if unused is None:
                return  # it waits in the engine until another has ended
            del self._slots[unused]
            self._on_change(unused)
        self._slots[name] = None
        self._on_change(name)

    def _is_idle(self, name: str) -> bool:
        return not self._users[name] and name not in self._on_trial

    def _is_refused(self, name: str) -> bool:
        return self._refused.get(name, 0.0) > asyncio.get_running_loop().time()

    def _remember_refusal(self, name: str) -> None:
        self._refused.pop(name, None)
        self._refused[name] = asyncio.get_running_loop().time() + REFUSED_SECONDS
        if len(self._refused) > REFUSALS_KEPT:
            del self._refused[next(iter(self._refused))]
