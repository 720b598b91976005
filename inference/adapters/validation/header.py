"""Reads the header of a safetensors file, within bounds, and believes nothing that it says.

The format is eight bytes of length, JSON of that length, and the tensors' bytes
(github.com/huggingface/safetensors, README, "Format").
"""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from inference.adapters.validation.span import Span
from inference.adapters.validation.verdicts import Bounds, RefusalCode, UploadRefused, shown

ITEM_BYTES: Final = {"F32": 4, "F16": 2, "BF16": 2}
METADATA: Final = "__metadata__"

_LENGTH: Final = struct.Struct("<Q")
_KEYS: Final = {"dtype", "shape", "data_offsets"}
_MOST_DIMENSIONS: Final = 2
_MOST_SIZE: Final = 2**32


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of an upload; `data` are its numbers, little-endian, rows first."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Span


def read_header(file: Span, bounds: Bounds) -> list[Tensor]:
    """Return the tensors of a file, which cover it without gap or overlap. Raises
    `UploadRefused`."""
    if file.size < _LENGTH.size:
        raise _invalid("it is shorter than the length of its header")
    (size,) = _LENGTH.unpack(file.part(0, _LENGTH.size).read())
    if size > bounds.header_bytes or _LENGTH.size + size > file.size:
        raise _invalid(
            f"it says that its header has {size} bytes; at most {bounds.header_bytes}, and no more "
            "than the file has, are taken"
        )
    header = _parsed(file.part(_LENGTH.size, size).read())
    metadata = header.pop(METADATA, {})
    if type(metadata) is not dict or any(type(value) is not str for value in metadata.values()):
        raise _invalid(f"{METADATA} is not an object of strings")
    data = file.part(_LENGTH.size + size, file.size - _LENGTH.size - size)
    tensors = [_tensor(name, entry, data) for name, entry in header.items()]
    at = data.offset
    for tensor in sorted(tensors, key=lambda tensor: tensor.data.offset):
        if tensor.data.offset != at:
            raise _invalid(
                f"{shown(tensor.name)} overlaps another tensor or leaves a gap before it",
                where=tensor.name,
            )
        at += tensor.data.size
    if at != data.offset + data.size:
        raise _invalid("it is longer than its tensors")
    if not tensors:
        raise _invalid("it holds no tensor")
    return tensors


def _parsed(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise _invalid("its header does not begin as JSON")
    try:
        header = parse_json(text)
    except ValueError as error:
        raise _invalid(f"its header is no JSON ({shown(str(error))})") from None
    if type(header) is not dict:
        raise _invalid("its header is no object")
    return header


def parse_json(text: bytes) -> Any:
    """Parse JSON as its specification has it: UTF-8, no NaN, no key twice. Raises ValueError."""
    try:
        return json.loads(
            text.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _tensor(name: str, entry: Any, data: Span) -> Tensor:
    if type(entry) is not dict or entry.keys() != _KEYS:
        raise _invalid(f"{shown(name)} has other fields than dtype, shape, data_offsets", name)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if type(dtype) is not str or dtype not in ITEM_BYTES:
        raise UploadRefused(
            RefusalCode.TENSOR_DTYPE,
            f"{shown(name)} is of type {shown(str(dtype))}. Save the adapter in F32, F16 or BF16.",
            where=shown(name),
        )
    if not _are_sizes(shape) or len(shape) > _MOST_DIMENSIONS or 0 in shape:
        raise _invalid(f"{shown(name)} has a shape that no weight of an adapter has", name)
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _invalid(f"{shown(name)} has no two offsets", name)
    begin, end = offsets
    if not begin <= end <= data.size or end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
        raise _invalid(
            f"the offsets of {shown(name)} are beyond the file, or not of its shape's size", name
        )
    return Tensor(name=name, dtype=dtype, shape=tuple(shape), data=data.part(begin, end - begin))


def _are_sizes(value: Any) -> bool:
    return type(value) is list and all(
        type(number) is int and 0 <= number < _MOST_SIZE for number in value
    )


def _invalid(what: str, where: str = "") -> UploadRefused:
    return UploadRefused(
        RefusalCode.HEADER_INVALID,
        f"adapter_model.safetensors is no valid safetensors file: {what}. Save the adapter anew "
        "with PEFT's save_pretrained, and upload it whole.",
        where=shown(where),
    )
