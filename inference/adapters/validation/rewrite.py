"""Looks at every number of an adapter, and writes the one file that is stored.

The same adapter gives the same bytes, whatever it came in: tensors by the size of their numbers, so
that each is aligned, then by name; one metadata entry, `adapter_config`.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy

from inference.adapters.validation.header import ITEM_BYTES, METADATA, Tensor
from inference.adapters.validation.lora_config import LoraSettings, stored_config
from inference.adapters.validation.magnitudes import (
    Magnitude,
    Measure,
    check_change,
    check_magnitudes,
)
from inference.adapters.validation.modules import PREFIX, Pair
from inference.adapters.validation.span import write_all
from inference.adapters.validation.verdicts import RefusalCode, UploadRefused, shown

_ALIGNMENT: Final = 8
# Type -> words, and their exponent's bits, which are all set in NaN and infinity.
_WORDS: Final = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}


def write_adapter(pairs: Sequence[Pair], settings: LoraSettings, output: int) -> bool:
    """Write an adapter to `output`, and return whether it changes anything: whether there is a
    module whose A and B are both other than zero. Raises `UploadRefused` at NaN and infinity, and
    for what is too large."""
    config = stored_config(settings, [pair.module for pair in pairs])
    tensors = sorted(
        (tensor for pair in pairs for tensor in (pair.a, pair.b)),
        key=lambda tensor: (-ITEM_BYTES[tensor.dtype], tensor.name),
    )
    write_all(output, _header(tensors, config))
    found = {tensor.name: _copy_checked(tensor, output) for tensor in tensors}
    for pair in pairs:
        scale = settings.scale_of(pair.module)
        a, b = found[pair.a.name], found[pair.b.name]
        check_magnitudes(pair.module, a, b, scale)
        check_change(pair.module, a, b, scale, pair.base_norm)
    return any(found[pair.a.name].largest and found[pair.b.name].largest for pair in pairs)


def _header(tensors: Sequence[Tensor], config: str) -> bytes:
    header: dict[str, Any] = {METADATA: {"adapter_config": config}}
    at = 0
    for tensor in tensors:
        end = at + tensor.data.size
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _copy_checked(tensor: Tensor, output: int) -> Magnitude:
    """Copy a tensor, and return how large its numbers are. What is written is what was looked at:
    each byte is read once."""
    kind, exponent = _WORDS[tensor.dtype]
    measure = Measure(tensor.dtype, tensor.shape[1])
    for chunk in tensor.data.chunks():
        words = numpy.frombuffer(chunk, dtype=kind)
        if bool(((words & exponent) == exponent).any()):
            module = tensor.name.removeprefix(PREFIX)
            raise UploadRefused(
                RefusalCode.TENSOR_NOT_FINITE,
                f"{shown(module)} holds NaN or infinity. The training diverged: train again, with "
                "a lower learning rate or in another precision, and upload that.",
                where=shown(module),
            )
        measure.add(words)
        write_all(output, chunk)
    return measure.taken()
