"""LoRA adapters as PEFT writes them, of seeded weights. Needs no pytest: the engine's environment
has none."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from safetensors.numpy import save_file

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from gpu_workers.engine import LoadableAdapter
from gpu_workers.protocol.adapters import AdapterBase, BaseModule

_LENGTH_BYTES = 8


def write_adapter(
    folder: Path,
    base: AdapterBase,
    seed: int,
    *,
    rank: int = 4,
    strength: float = 1.0,
    modules: Sequence[BaseModule] | None = None,
    weight: float | None = None,
    **config: Any,
) -> LoadableAdapter:
    """Write an adapter of these modules, all by default, in a folder of its own; at `strength` 1
    each changes its layer's output by about as much as that is. All weights are `weight` if
    given."""
    random = numpy.random.default_rng(seed)
    tensors = {}
    for module in base.modules if modules is None else modules:
        down = random.standard_normal((rank, module.in_features)) / module.in_features**0.5
        up = random.standard_normal((module.out_features, rank)) * strength / rank**0.5
        if weight is not None:
            down, up = numpy.full_like(down, weight), numpy.full_like(up, weight)
        name = f"base_model.model.{module.name}.lora"
        tensors[f"{name}_A.weight"] = down.astype(numpy.float32)
        tensors[f"{name}_B.weight"] = up.astype(numpy.float32)
    name = hashlib.sha256(f"{seed} {rank} {strength} {weight}".encode()).hexdigest()
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS_FILE)
    targets = sorted({module.name.rpartition(".")[2] for module in base.modules})
    whole = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}
    (folder / CONFIG_FILE).write_text(json.dumps(whole | config))
    return LoadableAdapter(name=name, folder=folder)


def stored_form(folder: Path) -> bytes:
    """An adapter's two files as one, as they are stored: the configuration is the metadata."""
    weights = (folder / WEIGHTS_FILE).read_bytes()
    start = _LENGTH_BYTES + int.from_bytes(weights[:_LENGTH_BYTES], "little")
    header = json.loads(weights[_LENGTH_BYTES:start])
    header["__metadata__"] = {"adapter_config": (folder / CONFIG_FILE).read_text()}
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % _LENGTH_BYTES)
    return len(written).to_bytes(_LENGTH_BYTES, "little") + written + weights[start:]
