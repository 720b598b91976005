"""A LoRA adapter's files, looked at before an engine loads them: whether this base can have it.

What comes to a worker was validated before; but a file may be damaged on its disk, and the base or
its largest rank may be another one by now. An engine finds that out inside a step, or never.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from gpu_workers.engine import AdapterRefused
from gpu_workers.protocol.adapters import AdapterBase, BaseModule

CONFIG_FILE: Final = "adapter_config.json"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
# As PEFT names the two tensors of a module.
_PREFIX: Final = "base_model.model."
_DOWN: Final = ".lora_A.weight"
_UP: Final = ".lora_B.weight"
_TYPES: Final = frozenset({"F32", "F16", "BF16"})


def describe_base(
    *, model: str, configuration: bytes, max_rank: int, modules: Iterable[BaseModule]
) -> AdapterBase:
    """Return what adapters of a base are validated against; `configuration` is whatever tells it
    from another base with the same modules. Norms are none of the digest: two GPUs, or two ways to
    share a layer among them, measure them a little differently."""
    table = sorted(modules, key=lambda module: module.name)
    digest = hashlib.sha256(configuration)
    for module in table:
        digest.update(f"\n{module.name} {module.in_features} {module.out_features}".encode())
    return AdapterBase(model=model, digest=digest.hexdigest(), max_rank=max_rank, modules=table)


def check_adapter(folder: Path, base: AdapterBase) -> None:
    """Check that both files are whole and that this base has every module, in this shape. Raises
    `AdapterRefused`."""
    config = _read_config(folder / CONFIG_FILE)
    rank = config.get("r")
    if config.get("peft_type") != "LORA" or not isinstance(rank, int) or rank < 1:
        raise AdapterRefused(f"{CONFIG_FILE} is not of a LoRA adapter with a rank")
    shapes = _read_shapes(folder / WEIGHTS_FILE)
    known = {_PREFIX + module.name: module for module in base.modules}
    modules = sorted({name.removesuffix(_DOWN).removesuffix(_UP) for name in shapes})
    unknown = [name for name in modules if name not in known]
    if unknown or not modules or len(shapes) != 2 * len(modules):
        raise AdapterRefused(f"{WEIGHTS_FILE} has tensors of no module of {base.model}: {unknown}")
    for name in modules:
        _check_module(known[name], shapes.get(name + _DOWN), shapes.get(name + _UP), base)


def _check_module(
    module: BaseModule, down: list[int] | None, up: list[int] | None, base: AdapterBase
) -> None:
    """Check the shapes of a module's two matrices: (rank, in) and (out, rank)."""
    rank = down[0] if down else 0
    if not 1 <= rank <= base.max_rank:
        raise AdapterRefused(f"{module.name} has rank {rank}; expected is 1 to {base.max_rank}")
    if down != [rank, module.in_features] or up != [module.out_features, rank]:
        raise AdapterRefused(
            f"{module.name} has the shapes {down} and {up}; expected of rank {rank} are "
            f"{[rank, module.in_features]} and {[module.out_features, rank]}"
        )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise AdapterRefused(f"{path.name} cannot be read: {type(error).__name__}") from error
    if not isinstance(config, dict):
        raise AdapterRefused(f"{path.name} is not a JSON object")
    return config


def _read_shapes(path: Path) -> dict[str, list[int]]:
    """Return tensor -> shape, of a header that fits the file to the byte."""
    # Only workers with adapters need it, and the numpy that comes with it.
    from safetensors import SafetensorError, safe_open

    shapes = {}
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                part = file.get_slice(name)
                if part.get_dtype() not in _TYPES:
                    raise AdapterRefused(f"{name} is of type {part.get_dtype()}")
                shapes[name] = list(part.get_shape())
    except (OSError, SafetensorError) as error:
        raise AdapterRefused(f"{path.name} cannot be read: {type(error).__name__}") from error
    return shapes
