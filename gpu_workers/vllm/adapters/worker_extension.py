"""What we ask of vLLM's worker besides its own: the table of what adapters may change. Runs in a
process of the engine's, which imports it by its name (`arguments`), with a GPU or without."""

import math
from collections.abc import Iterator
from typing import Any, Final

EXTENSION: Final = f"{__name__}.AdapterWorker"
LIST_MODULES: Final = "penstock_adapter_modules"


# Rows that a layer is tried with: its norm is known to about 1 / sqrt(2 * PROBES), 6 %.
PROBES: Final = 128
_SEED: Final = 3

# Name, input and output features, and the squared norm of this worker's share of the weights.
Row = tuple[str, int, int, float]


class AdapterWorker:
    """vLLM makes it a base of its worker's class."""

    model_runner: Any

    def penstock_adapter_modules(self) -> list[Row]:
        """Return the linear layers that vLLM has wrapped for adapters: name as in a checkpoint,
        input and output features of the whole layer, however many GPUs share it. Names are vLLM's
        own, which are the checkpoint's for all models that it does not rename. The squared norms of
        all workers add up to the layer's; what several hold a copy of counts as often."""
        manager = self.model_runner.lora_manager._adapter_manager
        return [
            row
            for name, module in manager.modules.items()
            for row in _rows(name, manager.packed_modules.get(name), module.base_layer)
        ]


def _rows(name: str, packed: list[str] | None, layer: Any) -> Iterator[Row]:
    """Yield a layer, or those of the checkpoint that vLLM has packed into it."""
    sizes = _output_sizes(layer)
    if packed is None:
        yield name, layer.input_size, sum(sizes), sum(_squared_norms(layer))
    elif len(packed) == len(sizes):
        squares = _squared_norms(layer)
        for each, size, square in zip(packed, sizes, squares, strict=True):
            yield each, layer.input_size, size, square


def _squared_norms(layer: Any) -> list[float]:
    """Return the squared Frobenius norm of each matrix that is packed into a layer's weights.

    It is what the layer makes of an input of random signs, squared, on average: so it is known of
    weights that are quantised, or packed for a CPU, as well (Hutchinson's estimate of a trace).
    NaN for a layer that does not compute alone."""
    import torch  # who asks for this module's names alone has none

    sizes = layer.output_partition_sizes
    wide = getattr(layer, "input_size_per_partition", layer.input_size)
    signs = torch.randint(0, 2, (PROBES, wide), generator=torch.Generator().manual_seed(_SEED))
    inputs = (2 * signs - 1).to(next(layer.parameters()).device, layer.params_dtype)
    try:
        with torch.inference_mode():
            outputs = layer.quant_method.apply(layer, inputs, None)
    except Exception:  # noqa: BLE001 - of any quantisation; an unknown norm bounds nothing
        return [math.nan] * len(sizes)
    parts = outputs.float().split(sizes, dim=-1)
    return [float(part.square().sum()) / PROBES for part in parts]


def _output_sizes(layer: Any) -> list[int]:
    if hasattr(layer, "total_num_kv_heads"):  # `output_sizes` has those that GPUs repeat, too
        heads, kv_heads = layer.total_num_heads, layer.total_num_kv_heads
        return [
            heads * layer.head_size,
            kv_heads * layer.head_size,
            kv_heads * layer.v_head_size,
        ]
    return list(getattr(layer, "output_sizes", None) or [layer.output_size])
