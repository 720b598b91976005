"""LoRA adapters of the simulated engine: loaded from real files, so that a wrong one shows."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from gpu_workers.adapter_files import WEIGHTS_FILE, check_adapter, describe_base
from gpu_workers.engine import AdapterRefused, LoadableAdapter
from gpu_workers.protocol.adapters import AdapterBase, BaseModule

# The shapes of the demo model, so that its adapters fit here too.
_LAYERS: Final = 4
_SHAPES: Final = {
    "self_attn.q_proj": (256, 256),
    "self_attn.k_proj": (256, 128),
    "self_attn.v_proj": (256, 128),
    "self_attn.o_proj": (256, 256),
    "mlp.gate_proj": (256, 704),
    "mlp.up_proj": (256, 704),
    "mlp.down_proj": (704, 256),
}


class SimAdapters:
    """At most `in_memory` adapters, each a name and a voice that its weights give it."""

    def __init__(
        self,
        *,
        slots: int,
        in_memory: int,
        model: str,
        max_rank: int,
        load_seconds: float,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.slots = slots
        self.in_memory = max(slots, in_memory)
        self.base = sim_base(model, max_rank) if slots else None
        self._load_seconds = load_seconds
        self._sleep = sleep
        self._voices: dict[str, bytes] = {}
        self._one_at_a_time = asyncio.Lock()

    def voice(self, name: str) -> bytes | None:
        """Return what an adapter adds to a prompt; None for one that is not loaded."""
        return self._voices.get(name)

    async def load(self, adapter: LoadableAdapter) -> None:
        """Load as `Engine.load_adapter` says. Raises `AdapterRefused`."""
        if self.base is None:
            raise AdapterRefused("this engine has no slots for adapters")
        async with self._one_at_a_time:
            if adapter.name in self._voices:
                return
            if len(self._voices) >= self.in_memory:
                raise AdapterRefused(f"{self.in_memory} adapters are loaded, and no more may be")
            check_adapter(adapter.folder, self.base)
            if self._load_seconds:
                await self._sleep(self._load_seconds)
            self._voices[adapter.name] = sim_voice(adapter)

    def unload(self, name: str) -> None:
        self._voices.pop(name, None)


def sim_base(model: str, max_rank: int) -> AdapterBase:
    """Return the table of the simulated base: the linear layers of the demo model."""
    modules = [
        BaseModule(name=f"model.layers.{layer}.{name}", in_features=wide, out_features=out)
        for layer in range(_LAYERS)
        for name, (wide, out) in _SHAPES.items()
    ]
    return describe_base(model=model, configuration=b"sim", max_rank=max_rank, modules=modules)


def sim_voice(adapter: LoadableAdapter) -> bytes:
    """Return what tells an adapter's answers from all others': of its name and its weights. Raises
    `AdapterRefused` if they cannot be read."""
    try:
        weights = (adapter.folder / WEIGHTS_FILE).read_bytes()
    except OSError as error:
        raise AdapterRefused(f"{WEIGHTS_FILE} cannot be read: {type(error).__name__}") from error
    return hashlib.blake2s(adapter.name.encode() + b"\0" + weights).digest()
