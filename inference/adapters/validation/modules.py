"""Compares the tensors of an upload with the base's own table of modules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.adapters import AdapterBase, BaseModule
from inference.adapters.validation.header import Tensor
from inference.adapters.validation.lora_config import LoraSettings
from inference.adapters.validation.verdicts import (
    Bounds,
    RefusalCode,
    UploadRefused,
    shown,
    shown_list,
)

PREFIX: Final = "base_model.model."
_A: Final = ".lora_A.weight"
_B: Final = ".lora_B.weight"
# Part of a tensor's name -> what it belongs to.
_UNSUPPORTED: Final = (
    ("lora_magnitude_vector", "DoRA"),
    ("lora_embedding_", "an embedding"),
    ("modules_to_save", "a module that was trained as a whole"),
    ("trainable_tokens", "added tokens"),
    ("token_adapter", "added tokens"),
    ("lora_diag", "KaSA"),
    (".bias", "a bias"),
    ("base_layer", "the base itself"),
    ("prompt_embeddings", "prompt tuning"),
)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two tensors of a module: A is (rank, in_features), B is (out_features, rank). `base_norm`
    is the Frobenius norm of the base's own weights, None where its workers do not know it."""

    module: str
    base_norm: float | None
    a: Tensor
    b: Tensor

    @property
    def rank(self) -> int:
        return self.a.shape[0]


def pair_up(
    tensors: Sequence[Tensor], base: AdapterBase, settings: LoraSettings, bounds: Bounds
) -> list[Pair]:
    """Return the pairs of an adapter that fits the base, by module. Raises `UploadRefused`."""
    table = {module.name: module for module in base.modules}
    halves: dict[str, dict[str, Tensor]] = {}
    for tensor in tensors:
        module, half = _split(tensor.name)
        if module not in table:
            raise _no_such_module(module, base)
        halves.setdefault(module, {})[half] = tensor
    return [
        _checked(table[module], halves[module], base, settings, bounds) for module in sorted(halves)
    ]


def _split(name: str) -> tuple[str, str]:
    for half in (_A, _B):
        if name.startswith(PREFIX) and name.endswith(half):
            return name[len(PREFIX) : -len(half)], half
    what = next((what for part, what in _UNSUPPORTED if part in name), "no linear layer's LoRA")
    raise UploadRefused(
        RefusalCode.TENSOR_UNSUPPORTED,
        f"The tensor {shown(name)} is of {what}. Only LoRA's A and B of linear layers are served, "
        f"by PEFT's names: {PREFIX}<module>{_A} and {_B}.",
        where=shown(name),
    )


def _checked(
    module: BaseModule,
    halves: dict[str, Tensor],
    base: AdapterBase,
    settings: LoraSettings,
    bounds: Bounds,
) -> Pair:
    for half in (_A, _B):
        if half not in halves:
            raise UploadRefused(
                RefusalCode.TENSOR_UNPAIRED,
                f"{shown(module.name)} has no tensor {half.removesuffix('.weight')[1:]}; A and B "
                "come together. Save the adapter anew.",
                where=module.name,
            )
    pair = Pair(module=module.name, base_norm=module.norm, a=halves[_A], b=halves[_B])
    _check_shape(module, pair, base)
    most = min(base.max_rank, bounds.max_rank)
    if pair.rank > most:
        raise UploadRefused(
            RefusalCode.RANK,
            f"{module.name} has rank {pair.rank}; at most {most} is served here. Train with a "
            "lower rank, or ask for a higher one.",
            where=module.name,
        )
    declared = settings.rank_of(module.name)
    if pair.rank != declared:
        raise UploadRefused(
            RefusalCode.RANK_MISMATCH,
            f"adapter_config.json gives {module.name} rank {declared}, its tensors have "
            f"{pair.rank}: its scale would be wrong. Upload the configuration that was saved with "
            "them.",
            where=module.name,
        )
    return pair


def _check_shape(module: BaseModule, pair: Pair, base: AdapterBase) -> None:
    rank = pair.a.shape[0]
    expected = {_A: (rank, module.in_features), _B: (module.out_features, rank)}
    for tensor, half in ((pair.a, _A), (pair.b, _B)):
        if tensor.shape != expected[half]:
            raise UploadRefused(
                RefusalCode.WRONG_BASE,
                f"{module.name}{half} has the shape {list(tensor.shape)}; {base.model} needs "
                f"{list(expected[half])}. The adapter was trained for another base, or only a part "
                f"of it was saved: train it for {base.model}.",
                where=module.name,
            )


def _no_such_module(module: str, base: AdapterBase) -> UploadRefused:
    taken = sorted({known.name.rsplit(".", 1)[-1] for known in base.modules})
    last = module.rsplit(".", 1)[-1]
    why = "has no such module" if last in taken else "takes no adapter of such modules"
    return UploadRefused(
        RefusalCode.WRONG_BASE,
        f"The adapter changes {shown(module)}; {base.model} {why}. Train it for {base.model}, with "
        f"target_modules among {shown_list(taken)}.",
        where=shown(module),
    )
