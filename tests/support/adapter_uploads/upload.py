"""Uploads of adapters as PEFT writes them, and as somebody else does."""

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy

from gpu_workers.protocol.adapters import AdapterBase, BaseModule

PREFIX: Final = "base_model.model."
FIRST: Final = f"{PREFIX}model.layers.0.q_proj.lora_A.weight"
FIRST_B: Final = f"{PREFIX}model.layers.0.q_proj.lora_B.weight"
LAYERS: Final = 2
# Module of each layer -> its sizes, in and out.
SIZES: Final = {"q_proj": (16, 24), "v_proj": (16, 8), "down_proj": (32, 16)}
RANK: Final = 4

BASE: Final = AdapterBase(
    model="turbine-tiny",
    digest="0" * 64,
    max_rank=16,
    modules=[
        BaseModule(name=f"model.layers.{layer}.{name}", in_features=sizes[0], out_features=sizes[1])
        for layer in range(LAYERS)
        for name, sizes in SIZES.items()
    ],
)

Arrays = dict[str, Any]  # tensor's name -> numpy's array, of float32, float16, or uint16 for BF16
_DTYPES: Final = {"<f4": "F32", "<f2": "F16", "<u2": "BF16"}


def arrays(
    *, rank: int = RANK, dtype: str = "<f4", seed: int = 7, base: AdapterBase = BASE
) -> Arrays:
    """A and B of every module of the base."""
    random = numpy.random.default_rng(seed)
    made: Arrays = {}
    for module in base.modules:
        for half, shape in (
            ("lora_A", (rank, module.in_features)),
            ("lora_B", (module.out_features, rank)),
        ):
            numbers = random.standard_normal(shape).astype("<f4")
            made[f"{PREFIX}{module.name}.{half}.weight"] = (
                (numbers.view("<u4") >> 16).astype("<u2")
                if dtype == "<u2"
                else numbers.astype(dtype)
            )
    return made


def spoiled(number: float, dtype: str = "<f4") -> bytes:
    """Good tensors but for the last number of one module's B."""
    tensors = arrays(dtype=dtype)
    last = tensors[FIRST_B]
    last[-1, -1] = numpy.float32(number).view("<u4") >> 16 if dtype == "<u2" else number
    return safetensors(tensors)


def config(**changes: Any) -> dict[str, Any]:
    """What PEFT 0.21 writes for a plain LoRA; a change to `...` leaves the key out."""
    plain: dict[str, Any] = {
        "alora_invocation_tokens": None,
        "alpha_pattern": {},
        "arrow_config": None,
        "auto_mapping": None,
        "base_model_name_or_path": "/home/somebody/turbine-tiny",
        "bias": "none",
        "corda_config": None,
        "ensure_weight_tying": False,
        "eva_config": None,
        "exclude_modules": None,
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "kasa_config": None,
        "layer_replication": None,
        "layers_pattern": None,
        "layers_to_transform": None,
        "loftq_config": {},
        "lora_alpha": 8,
        "lora_bias": False,
        "lora_dropout": 0.05,
        "lora_ga_config": None,
        "megatron_config": None,
        "megatron_core": "megatron.core",
        "modules_to_save": None,
        "monteclora_config": None,
        "peft_type": "LORA",
        "peft_version": "0.21.2",
        "qalora_group_size": 16,
        "r": RANK,
        "rank_pattern": {},
        "revision": None,
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "target_parameters": None,
        "task_type": "CAUSAL_LM",
        "trainable_token_indices": None,
        "use_bdlora": None,
        "use_dora": False,
        "use_qalora": False,
        "use_rslora": False,
        "velora_config": None,
    }
    return {key: value for key, value in {**plain, **changes}.items() if value is not ...}


def entries_of(tensors: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The header's entries of tensors one behind the other, and their bytes."""
    entries: dict[str, Any] = {}
    data = bytearray()
    for name, array in tensors.items():
        begin = len(data)
        data += array.tobytes()
        entries[name] = {
            "dtype": _DTYPES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    return entries, bytes(data)


def raw_safetensors(header: Any, data: bytes, *, length: int | None = None) -> bytes:
    """A file with any header: JSON of it, or its bytes; `length` is what it says that it has."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors(tensors: Mapping[str, Any]) -> bytes:
    entries, data = entries_of(tensors)
    return raw_safetensors({"__metadata__": {"format": "pt"}, **entries}, data)


def files(
    *, tensors: bytes | None = None, settings: Mapping[str, Any] | bytes | None = None
) -> dict[str, bytes]:
    """PEFT's two files, with what a case changes of them."""
    settings = config() if settings is None else settings
    return {
        "adapter_config.json": settings
        if isinstance(settings, bytes)
        else json.dumps(settings, indent=2).encode(),
        "adapter_model.safetensors": safetensors(arrays()) if tensors is None else tensors,
    }


def zipped(
    contents: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED, comment: bytes = b""
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.comment = comment
        for name, data in contents.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(
    contents: Mapping[str, bytes],
    *extra: tarfile.TarInfo,
    mode: str = "w",
    dialect: int = tarfile.PAX_FORMAT,
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=dialect) as archive:  # type: ignore[call-overload]
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mtime = 1.5  # a pax record, as a file's time gives one
            archive.addfile(entry, io.BytesIO(data))
        for entry in extra:
            archive.addfile(entry)
    return buffer.getvalue()


def upload(folder: Path, data: bytes) -> Path:
    path = folder / "upload"
    path.write_bytes(data)
    return path
