"""vLLM's LoRA kernels for hosts without a GPU, with a slot for every token that has one.

vLLM 0.32 gives a token without an adapter the slot -1, and its kernels for the CPU take that for
Python's: the last slot (vLLM issue 48421). Once all slots have been filled, whoever asks the base
beside an adapter gets another tenant's. They also copy a slot's weights for every token, of a long
prompt gigabytes. Here each slot's rows are multiplied together, short blocks of several slots in
one product, as a product of few rows costs no more than its call. No row is touched by another
slot: not by a factor of zero either, which a weight that is not a number would pass through.

What an adapter adds is kept within bounds too. Weights so large that something overflows leave NaN
in the KV cache, whose blocks are used again as they are: attention multiplies what stands behind a
sequence's end by zero, and so whoever gets the block next would get NaN.

Runs in a process of the engine's (`cpu_worker`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import vllm
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

MENDED_VERSION: Final = "0.32."

# The squares of a row of such numbers add up to far less than float32 and bfloat16 hold; and models
# compute with smaller ones, as this is float16's largest.
MOST: Final = 65504.0

# Blocks of as many rows or fewer are filled up to the next power of two and multiplied together.
SHORT: Final = 16


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Rows of a batch that are multiplied together: `width` rows of each slot. A block that has
    fewer repeats its first, and what becomes of the repeated is left out."""

    slots: torch.Tensor  # (slots,)
    rows: torch.Tensor  # (slots * width,), of the batch
    own: torch.Tensor | None  # of `rows`, those that are not repeated; None: all
    targets: torch.Tensor  # the own rows, of the batch

    def taken(self, x: torch.Tensor) -> torch.Tensor:
        """Return (slots, width, in) of x (rows, in)."""
        return x.index_select(0, self.rows).view(len(self.slots), -1, x.shape[-1])

    def weights(self, stacked: torch.Tensor) -> torch.Tensor:
        """Return (slots, in, out) of weights (slots of the engine, 1, out, in)."""
        chosen = stacked.index_select(0, self.slots)
        return chosen.view(len(self.slots), -1, stacked.shape[-1]).transpose(1, 2)

    def given(self, part: torch.Tensor) -> torch.Tensor:
        """Return of (slots, width, out) what `targets` get (rows, out)."""
        part = part.reshape(-1, part.shape[-1])
        return part if self.own is None else part.index_select(0, self.own)


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

    _token_blocks: Sequence[Blocks] = ()
    _sampled_blocks: Sequence[Blocks] = ()

    def update_metadata(
        self, mapping: Any, lora_index_to_id: list[int | None], *arguments: Any, **options: Any
    ) -> None:
        super().update_metadata(mapping, lora_index_to_id, *arguments, **options)
        self._token_blocks = blocks_of(self.token_lora_indices.tolist())
        self._sampled_blocks = blocks_of(self.sampler_indices.tolist())

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
        y = y.view(-1, y.shape[-1])
        x = x.view(-1, x.shape[-1])
        for blocks in self._token_blocks:
            taken = blocks.taken(x).to(torch.float32)
            parts = [
                _expand(blocks, _shrink(blocks, taken, a, scale), b, y.dtype)
                for a, b in zip(lora_a_stacked, lora_b_stacked, strict=True)
            ]
            part = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
            _put(y[:, : sum(output_slices)], blocks, part)

    def add_shrink(
        self,
        y: Sequence[torch.Tensor],
        x: torch.Tensor,
        lora_a_stacked: Sequence[torch.Tensor],
        scale: float,
        **_: Any,
    ) -> None:
        x = x.view(-1, x.shape[-1])
        for blocks in self._token_blocks:
            taken = blocks.taken(x).to(torch.float32)
            for buffer, a in zip(y, lora_a_stacked, strict=True):
                flat = buffer.view(-1, buffer.shape[-1])
                part = blocks.given(_shrink(blocks, taken, a, scale))
                flat[blocks.targets, : part.shape[1]] = part.to(flat.dtype)

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
        for blocks in self._token_blocks:
            start = offset_start
            for buffer, b, width in zip(x, lora_b_stacked, output_slices, strict=True):
                taken = blocks.taken(buffer.view(-1, buffer.shape[-1]))
                part = _expand(blocks, taken, b, y.dtype)
                _put(y[:, start : start + width], blocks, part, adds=add_inputs)
                start += width

    def add_lora_embedding(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_b_stacked: torch.Tensor,
        add_inputs: bool = True,
        **_: Any,
    ) -> None:
        for blocks in self._token_blocks:
            part = _expand(blocks, blocks.taken(x), lora_b_stacked, y.dtype)
            _put(y[:, : part.shape[-1]], blocks, part, adds=add_inputs)

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
        for blocks in self._sampled_blocks:
            taken = blocks.taken(x).to(torch.float32)
            part = _shrink(blocks, taken, lora_a_stacked, scale)
            part = _expand(blocks, part, lora_b_stacked, y.dtype)
            width = min(part.shape[-1], y.shape[-1])  # they may be padded differently
            _put(y[:, :width], blocks, part[..., :width])


def blocks_of(slots: Sequence[int]) -> list[Blocks]:
    """Return the blocks of a batch, whose rows have these slots; those of none, -1, are nowhere."""
    rows_by_slot: defaultdict[int, list[int]] = defaultdict(list)
    for row, slot in enumerate(slots):
        if slot >= 0:
            rows_by_slot[slot].append(row)
    together: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for slot, rows in rows_by_slot.items():
        width = len(rows)
        # A long block stands alone: nothing is gained by others, and nothing is filled up.
        is_short = width <= SHORT
        key = (1 << (width - 1).bit_length(), -1) if is_short else (width, slot)
        together[key].append(slot)
    return [
        _blocks({slot: rows_by_slot[slot] for slot in alike}, width)
        for (width, _), alike in together.items()
    ]


def _blocks(rows_by_slot: dict[int, list[int]], width: int) -> Blocks:
    filled = [rows + rows[:1] * (width - len(rows)) for rows in rows_by_slot.values()]
    own = [
        block * width + place
        for block, rows in enumerate(rows_by_slot.values())
        for place in range(len(rows))
    ]
    return Blocks(
        slots=torch.tensor(list(rows_by_slot)),
        rows=torch.tensor(filled).flatten(),
        own=None if len(own) == width * len(filled) else torch.tensor(own),
        targets=torch.tensor([row for rows in rows_by_slot.values() for row in rows]),
    )


def _shrink(blocks: Blocks, x: torch.Tensor, a: torch.Tensor, scale: float) -> torch.Tensor:
    """Return x A^T in float32, as vLLM's kernels keep it; x (slots, width, in) in float32."""
    part = torch.bmm(x, blocks.weights(a).to(torch.float32))
    return part if scale == 1 else part.mul_(scale)


def _expand(blocks: Blocks, x: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return x B^T in `dtype`."""
    return torch.bmm(x.to(dtype), blocks.weights(b).to(dtype))


def _put(y: torch.Tensor, blocks: Blocks, part: torch.Tensor, *, adds: bool = True) -> None:
    """Put what adapters add into y's rows, all of it finite and bounded."""
    given = blocks.given(part.nan_to_num_(nan=0.0).clamp_(-MOST, MOST))
    if adds:
        y.index_add_(0, blocks.targets, given)
    else:
        y[blocks.targets] = given
