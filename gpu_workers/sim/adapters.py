"""LoRA adapters of the simulated engine: loaded from real files, so that a wrong one shows."""

import asyncio
import hashlib
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from gpu_workers.adapter_effect import LEAST_DIFFERENCE
from gpu_workers.adapter_files import WEIGHTS_FILE, check_adapter, describe_base
from gpu_workers.engine import AdapterRefused, LoadableAdapter, ProbeFailed
from gpu_workers.protocol.adapters import AdapterBase, AdapterEffect, BaseModule

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
# The root of the mean square of the demo model's weights.
_WEIGHT: Final = 0.06
_NUMBERS: Final = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


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
        self._folders: dict[str, Path] = {}
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
            self._folders[adapter.name] = adapter.folder

    async def probe(self, name: str) -> AdapterEffect:
        """Tell what a model would make of an adapter's weights; here its voice makes another answer
        of the same prompt, whatever they are. Raises `ProbeFailed`."""
        folder = self._folders.get(name)
        if folder is None:
            raise ProbeFailed("it is not loaded")
        try:
            return await asyncio.to_thread(_effect_of, folder / WEIGHTS_FILE)
        except OSError as error:
            raise ProbeFailed(f"its weights cannot be read: {error.strerror}") from error

    def unload(self, name: str) -> None:
        self._voices.pop(name, None)
        self._folders.pop(name, None)


def sim_base(model: str, max_rank: int) -> AdapterBase:
    """Return the table of the simulated base: the linear layers of the demo model, their norms
    those of weights as they are trained."""
    modules = [
        BaseModule(
            name=f"model.layers.{layer}.{name}",
            in_features=wide,
            out_features=out,
            norm=_WEIGHT * math.sqrt(wide * out),
        )
        for layer in range(_LAYERS)
        for name, (wide, out) in _SHAPES.items()
    ]
    return describe_base(model=model, configuration=b"sim", max_rank=max_rank, modules=modules)


def _effect_of(weights: Path) -> AdapterEffect:
    largest = _largest_numbers(weights)
    if not all(map(math.isfinite, largest.values())):
        return AdapterEffect.NOT_FINITE
    products = [down * largest[_up(name)] for name, down in largest.items() if _up(name) in largest]
    changes = max(products, default=0.0) >= LEAST_DIFFERENCE
    return AdapterEffect.CHANGES if changes else AdapterEffect.NONE


def _up(down: str) -> str:
    """Return the name of the matrix that a module's other one, if it is that, is multiplied by."""
    return down.replace("lora_A", "lora_B") if "lora_A" in down else ""


def _largest_numbers(weights: Path) -> dict[str, float]:
    """Return the largest magnitude in each tensor; NaN where there is one. Raises `OSError`."""
    # Only workers with adapters have it.
    import numpy

    data = weights.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    largest = {}
    for name, tensor in header.items():
        begin, end = (start + offset for offset in tensor["data_offsets"])
        numbers = numpy.frombuffer(data[begin:end], dtype=_NUMBERS[tensor["dtype"]])
        if tensor["dtype"] == "BF16":  # the upper half of a float32
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        largest[name] = float(numpy.abs(numbers).max(initial=0.0))
    return largest


def sim_voice(adapter: LoadableAdapter) -> bytes:
    """Return what tells an adapter's answers from all others': of its name and its weights. Raises
    `AdapterRefused` if they cannot be read."""
    try:
        weights = (adapter.folder / WEIGHTS_FILE).read_bytes()
    except OSError as error:
        raise AdapterRefused(f"{WEIGHTS_FILE} cannot be read: {type(error).__name__}") from error
    return hashlib.blake2s(adapter.name.encode() + b"\0" + weights).digest()
