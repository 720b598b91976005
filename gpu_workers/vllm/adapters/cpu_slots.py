"""vLLM's LoRA kernels for hosts without a GPU, with a slot for every token that has one.

vLLM 0.32 gives a token without an adapter the slot -1, and its kernels for the CPU take that for
Python's: the last slot (vLLM issue 48421). Once all slots have been filled, whoever asks the base
beside an adapter gets another tenant's. They also copy a slot's weights for every token, of a long
prompt gigabytes. Here each slot's rows are multiplied together, and no other row is touched: not by
a factor of zero either, which a weight that is not a number would pass through.

What an adapter adds is kept within bounds too. Weights so large that something overflows leave NaN
in the KV cache, whose blocks are used again as they are: attention multiplies what stands behind a
sequence's end by zero, and so whoever gets the block next would get NaN.

Runs in a process of the engine's (`cpu_worker`).
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
import vllm
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

MENDED_VERSION: Final = "0.32."

# The squares of a row of such numbers add up to far less than float32 and bfloat16 hold; and models
# compute with smaller ones, as this is float16's largest.
MOST: Final = 65504.0

# A slot, and which rows of the batch use it.
Rows = list[tuple[int, torch.Tensor]]


def mend(lora_manager: Any) -> None:
    """Have a worker's LoRA layers use these kernels. Another vLLM's are left as they are: the probe
    finds out whether those keep adapters apart."""
    if not vllm.__version__.startswith(MENDED_VERSION):
        return
    for wrapper in lora_manager._adapter_manager.punica_wrapper_mapping.values():
        if type(wrapper) is PunicaWrapperCPU:
            wrapper.__class__ = SlotwiseKernels


class SlotwiseKernels(PunicaWrapperCPU):  # type: ignore[misc]  # vLLM is not seen here
    """Shapes as vLLM has them: x (rows, in), A (slots, 1, rank, in), B (slots, 1, out, rank),
    y (rows, out)."""

    _token_rows: Rows = []
    _sampled_rows: Rows = []

    def update_metadata(
        self, mapping: Any, lora_index_to_id: list[int | None], *arguments: Any, **options: Any
    ) -> None:
        super().update_metadata(mapping, lora_index_to_id, *arguments, **options)
        self._token_rows = _rows(self.token_lora_indices)
        self._sampled_rows = _rows(self.sampler_indices)

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: Sequence[torch.Tensor],
        lora_b_stacked: Sequence[torch.Tensor],
        scale: float,
        output_slices: Sequence[int],
        **_: Any,
    ) -> None:
        if not self._token_rows:  # nobody in this step has an adapter
            return
        y = y.view(-1, y.shape[-1])
        x = x.view(-1, x.shape[-1])
        for slot, rows in self._token_rows:
            taken, start = x[rows], 0
            for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                part = _expand(_shrink(taken, a[slot], scale), b[slot], y.dtype)
                y[:, start : start + width].index_add_(0, rows, part)
                start += width

    def add_shrink(
        self,
        y: Sequence[torch.Tensor],
        x: torch.Tensor,
        lora_a_stacked: Sequence[torch.Tensor],
        scale: float,
        **_: Any,
    ) -> None:
        x = x.view(-1, x.shape[-1])
        for slot, rows in self._token_rows:
            taken = x[rows]
            for buffer, a in zip(y, lora_a_stacked, strict=True):
                flat = buffer.view(-1, buffer.shape[-1])
                part = _shrink(taken, a[slot], scale)
                flat[rows, : part.shape[1]] = part.to(flat.dtype)

    def add_expand(
        self,
        y: torch.Tensor,
        x: Sequence[torch.Tensor],
        lora_b_stacked: Sequence[torch.Tensor],
        output_slices: Sequence[int],
        offset_start: int = 0,
        add_inputs: bool = True,
        **_: Any,
    ) -> None:
        y = y.view(-1, y.shape[-1])
        for slot, rows in self._token_rows:
            start = offset_start
            for buffer, b, width in zip(x, lora_b_stacked, output_slices, strict=True):
                part = _expand(buffer.view(-1, buffer.shape[-1])[rows], b[slot], y.dtype)
                _put(y[:, start : start + width], rows, part, adds=add_inputs)
                start += width

    def add_lora_embedding(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_b_stacked: torch.Tensor,
        add_inputs: bool = True,
        **_: Any,
    ) -> None:
        for slot, rows in self._token_rows:
            part = _expand(x[rows], lora_b_stacked[slot], y.dtype)
            _put(y[:, : part.shape[1]], rows, part, adds=add_inputs)

    def add_lora_logits(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: torch.Tensor,
        lora_b_stacked: torch.Tensor,
        scale: float,
        **_: Any,
    ) -> None:
        y = y.view(-1, y.shape[-1])
        x = x.view(-1, x.shape[-1])
        for slot, rows in self._sampled_rows:
            part = _shrink(x[rows], lora_a_stacked[slot], scale)
            part = _expand(part, lora_b_stacked[slot], y.dtype)
            width = min(part.shape[1], y.shape[1])  # they may be padded differently
            y[:, :width].index_add_(0, rows, part[:, :width])


def _rows(slots: torch.Tensor) -> Rows:
    """Return the slots of a batch's rows, each with its rows; those of no slot are nowhere."""
    found = torch.unique(slots).tolist()
    return [(slot, torch.nonzero(slots == slot).flatten()) for slot in found if slot >= 0]


def _shrink(x: torch.Tensor, a: torch.Tensor, scale: float) -> torch.Tensor:
    """Return x A^T in float32, as vLLM's kernels keep it."""
    part = x.to(torch.float32) @ a.view(-1, a.shape[-1]).to(torch.float32).T
    return part if scale == 1 else part * scale


def _expand(x: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return x B^T in `dtype`, all of it finite and bounded."""
    part = x.to(dtype) @ b.view(-1, b.shape[-1]).to(dtype).T
    return part.nan_to_num_(nan=0.0).clamp_(-MOST, MOST)


def _put(y: torch.Tensor, rows: torch.Tensor, part: torch.Tensor, *, adds: bool) -> None:
    if adds:
        y.index_add_(0, rows, part)
    else:
        y[rows] = part
