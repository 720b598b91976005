"""Adapters as large as the demo tenants': rank 16 in all seven linear layers, 16 bits a number. One
of ten is small, of rank 4 in two of the layers: what it leaves of a slot must not be another's."""

import json
from pathlib import Path
from typing import Final

import numpy
from safetensors.numpy import save

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from gpu_workers.protocol.sealed import new_salt, seal, stream_key
from gpu_workers.sim.adapters import sim_base
from tests.support.workers.adapters.store import MadeAdapter

RANK: Final = 16
# Each layer's output changes by about half as much as it is: other words, no noise.
STRENGTH: Final = 0.5
_SMALL_RANK: Final = 4
_SMALL_TARGETS: Final = ("q_proj", "v_proj")
_ONE_SMALL_OF: Final = 10
_SCALE: Final = 2  # PEFT's alpha for each rank
_KEY: Final = bytes(32)

# The linear layers of the demo model, which are the simulated engine's too.
_MODULES: Final = sim_base("any", RANK).modules


def write_folder(folder: Path, seed: int) -> Path:
    """Write an adapter as PEFT lays it out; return its folder."""
    config, plain = _made(seed)
    folder.mkdir(parents=True)
    (folder / WEIGHTS_FILE).write_bytes(plain)
    (folder / CONFIG_FILE).write_text(config)
    return folder


def stored(opaque: str, seed: int) -> MadeAdapter:
    """Return the same adapter as the store has it."""
    _, plain = _made(seed)
    salt = new_salt()
    sealed = b"".join(seal([plain], _KEY, salt=salt))
    return MadeAdapter(opaque, plain, sealed, stream_key(_KEY, salt))


def _made(seed: int) -> tuple[str, bytes]:
    """Return PEFT's configuration, and the file that is stored."""
    is_small = seed % _ONE_SMALL_OF == _ONE_SMALL_OF // 2
    rank = _SMALL_RANK if is_small else RANK
    modules = [
        module
        for module in _MODULES
        if not is_small or module.name.rpartition(".")[2] in _SMALL_TARGETS
    ]
    random = numpy.random.default_rng(seed)
    tensors = {}
    for module in modules:
        down = random.standard_normal((rank, module.in_features), numpy.float32)
        up = random.standard_normal((module.out_features, rank), numpy.float32)
        up *= STRENGTH / rank**0.5
        name = f"base_model.model.{module.name}.lora"
        tensors[f"{name}_A.weight"] = (down / module.in_features**0.5).astype(numpy.float16)
        tensors[f"{name}_B.weight"] = (up / _SCALE).astype(numpy.float16)
    targets = sorted({module.name.rpartition(".")[2] for module in modules})
    config = json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": _SCALE * rank, "target_modules": targets}
    )
    return config, save(tensors, metadata={"adapter_config": config})
