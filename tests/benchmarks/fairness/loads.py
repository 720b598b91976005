"""What a load of an adapter costs an engine, by where that is: slot, memory, disk or store.

From the store the request waits, and others go on; from disk and from memory the engine's loop
stands still for it, as in vLLM, which runs `add_lora` between two steps and copies an adapter's
weights to its slot within one.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from gpu_workers.protocol.adapters import AdapterLevel


@dataclass(frozen=True, kw_only=True)
class LoadModel:
    """Milliseconds, and adapters in memory at most. `to_slot_ms` and `to_memory_ms` are what
    `load_cost` measures of the engine's loop for an adapter of the demo model, of rank 8 and 0.61
    MB, on vLLM 0.32 with the engine's model on one core. `to_disk_ms` is of a network, and assumed:
    twice what an adapter in the store may add to a first token."""

    to_slot_ms: float = 2.2
    to_memory_ms: float = 4.8
    to_disk_ms: float = 1_000.0
    in_memory: int = 256


class Loads:
    """Which adapters an engine has and how near; each store begins empty and forgets what was used
    least recently. `changes` is what has changed, and `took_us` what loads have taken of the
    engine, since somebody emptied them."""

    def __init__(self, model: LoadModel, slots: int) -> None:
        self._model = model
        self._slots = slots
        self._in_slots: OrderedDict[str, None] = OrderedDict()
        self._in_memory: OrderedDict[str, None] = OrderedDict()
        self._on_disk: set[str] = set()
        self._coming: dict[str, float] = {}
        self._stall_ms = 0.0
        self.counts = dict.fromkeys(AdapterLevel, 0)
        self.changes: dict[str, AdapterLevel | None] = {}
        self.took_us: dict[str, int] = {}

    def get(self, adapter: str, now_ms: float) -> None:
        """Begin to get an adapter to memory."""
        if adapter and adapter not in self._in_memory:
            wait_ms = 0.0 if adapter in self._on_disk else self._model.to_disk_ms
            self._coming.setdefault(adapter, now_ms + wait_ms)

    def arrive(self, now_ms: float, running: Collection[str]) -> None:
        """Take to memory what has come by now."""
        for adapter in [each for each, at_ms in self._coming.items() if at_ms <= now_ms]:
            del self._coming[adapter]
            self._on_disk.add(adapter)
            self._to_memory(adapter, running)

    def is_here(self, adapter: str) -> bool:
        return adapter in self._on_disk

    def use(self, adapter: str, running: Collection[str]) -> None:
        """Have an adapter in a slot, in place of one that does not run."""
        if not adapter:
            return
        if adapter not in self._in_memory:
            self._to_memory(adapter, running)
        self._in_memory.move_to_end(adapter)
        if adapter not in self._in_slots:
            if len(self._in_slots) >= self._slots:
                idle = next(each for each in self._in_slots if each not in running)
                del self._in_slots[idle]
                self.changes[idle] = AdapterLevel.MEMORY
            self._in_slots[adapter] = None
            self._note(adapter, AdapterLevel.SLOT, self._model.to_slot_ms)
        self._in_slots.move_to_end(adapter)

    def take_stall_ms(self) -> float:
        """Return for how long the next step stands still."""
        stall_ms, self._stall_ms = self._stall_ms, 0.0
        return stall_ms

    def _to_memory(self, adapter: str, running: Collection[str]) -> None:
        if adapter in self._in_memory:
            return
        if len(self._in_memory) >= self._model.in_memory:
            held = {*running, *self._in_slots}
            oldest = next(each for each in self._in_memory if each not in held)
            del self._in_memory[oldest]
            self.changes[oldest] = AdapterLevel.DISK
        self._in_memory[adapter] = None
        self._note(adapter, AdapterLevel.MEMORY, self._model.to_memory_ms)

    def _note(self, adapter: str, level: AdapterLevel, stall_ms: float) -> None:
        self.changes[adapter] = level
        self.counts[level] += 1
        self._stall_ms += stall_ms
        if level == AdapterLevel.MEMORY:  # vLLM tells of no other
            self.took_us[adapter] = round(1000 * stall_ms)
