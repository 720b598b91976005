"""What we ask of vLLM's worker besides its own: the table of what adapters may change. Runs in a
process of the engine's, which imports it by its name (`arguments`), with a GPU or without."""

from collections.abc import Iterator
from typing import Any, Final

EXTENSION: Final = f"{__name__}.AdapterWorker"
LIST_MODULES: Final = "penstock_adapter_modules"


class AdapterWorker:
    """vLLM makes it a base of its worker's class."""

    model_runner: Any

    def penstock_adapter_modules(self) -> list[tuple[str, int, int]]:
        """Return the linear layers that vLLM has wrapped for adapters: name as in a checkpoint,
        input and output features of the whole layer, however many GPUs share it. Names are vLLM's
        own, which are the checkpoint's for all models that it does not rename."""
        manager = self.model_runner.lora_manager._adapter_manager
        return [
            row
            for name, module in manager.modules.items()
            for row in _rows(name, manager.packed_modules.get(name), module.base_layer)
        ]


def _rows(name: str, packed: list[str] | None, layer: Any) -> Iterator[tuple[str, int, int]]:
    """Yield a layer, or those of the checkpoint that vLLM has packed into it."""
    sizes = _output_sizes(layer)
    if packed is None:
        yield name, layer.input_size, sum(sizes)
    elif len(packed) == len(sizes):
        for each, size in zip(packed, sizes, strict=True):
            yield each, layer.input_size, size


def _output_sizes(layer: Any) -> list[int]:
    if hasattr(layer, "total_num_kv_heads"):  # `output_sizes` has those that GPUs repeat, too
        heads, kv_heads = layer.total_num_heads, layer.total_num_kv_heads
        return [
            heads * layer.head_size,
            kv_heads * layer.head_size,
            kv_heads * layer.v_head_size,
        ]
    return list(getattr(layer, "output_sizes", None) or [layer.output_size])
