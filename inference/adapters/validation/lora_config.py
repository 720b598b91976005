"""Reads PEFT's adapter_config.json by an allow-list, and writes the configuration that we store.

Keys are those of PEFT 0.21's LoraConfig (`peft/tuners/lora/config.py`). What a configuration asks
for, and the engine would not do, is refused by its key; what only guided the training is dropped.
Which modules are changed is not taken from it: the tensors tell.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from inference.adapters.validation.header import parse_json
from inference.adapters.validation.verdicts import RefusalCode, UploadRefused, shown

# Inits that leave the base as it is, so that the tensors alone are the adapter; "eva" and
# "orthogonal" choose A, PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA and KaSA subtract from the base.
_PLAIN_INITS: Final = (None, True, False, "gaussian", "eva", "orthogonal")
_MOST_ALPHA: Final = 1_000_000
_MOST_PATTERNS: Final = 4096
# A module's name, which PEFT takes as a regular expression that ends with it; one that needs more
# than letters and dots is neither run here nor given to the engine.
_PATTERN: Final = re.compile(r"\^?[A-Za-z0-9_.]{1,256}\Z")
_MOST_TEXT: Final = 4096


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ({}, [], "")


def _is_flag(value: Any) -> bool:
    return value is None or type(value) is bool


def _is_text(value: Any) -> bool:
    return value is None or (type(value) is str and len(value) <= _MOST_TEXT)


def _is_choice(value: Any) -> bool:
    """Modules or layers, by name or number: the tensors tell which they were."""
    if type(value) is list:
        return all(type(item) in (str, int) for item in value)
    return value is None or type(value) in (str, int)


def _is_init(value: Any) -> bool:
    return value is None or type(value) is bool or value in _PLAIN_INITS


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_origin(value: Any) -> bool:
    """Where the base's class is defined: PEFT notes it where no task is named, and nothing here
    imports it."""
    if type(value) is not dict:
        return _is_off(value)
    return value.keys() <= {"base_model_class", "parent_library"} and all(
        _is_text(each) for each in value.values()
    )


# Key -> whether its value asks for nothing but what is served.
_ALLOWED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "peft_type": lambda value: value == "LORA",
    "task_type": lambda value: value in (None, "CAUSAL_LM"),
    "r": lambda value: type(value) is int and value > 0,
    "lora_alpha": lambda value: _is_number(value) and 0 < value <= _MOST_ALPHA,
    "use_rslora": _is_flag,
    "rank_pattern": lambda value: value is None or type(value) is dict,
    "alpha_pattern": lambda value: value is None or type(value) is dict,
    "bias": lambda value: value in (None, "none"),
    "init_lora_weights": _is_init,
    # They guided the training, or tell where it was.
    "lora_dropout": lambda value: value is None or (_is_number(value) and 0 <= value <= 1),
    "inference_mode": _is_flag,
    "peft_version": _is_text,
    "base_model_name_or_path": _is_text,
    "revision": _is_text,
    "target_modules": _is_choice,
    "exclude_modules": _is_choice,
    "layers_to_transform": _is_choice,
    "layers_pattern": _is_choice,
    "eva_config": lambda value: value is None or type(value) is dict,
    # Defaults that PEFT writes for what is not in use.
    "megatron_core": lambda value: value in (None, "megatron.core"),
    "qalora_group_size": lambda value: value is None or type(value) is int,
    "ensure_weight_tying": _is_off,
    "fan_in_fan_out": _is_off,
    "modules_to_save": _is_off,
    "auto_mapping": _is_origin,
}
# Numbers of every LoRA: another value is no wish for something else, but none that can be.
_NUMBERS: Final[Mapping[str, str]] = {
    "r": "a whole number above 0",
    "lora_alpha": f"a number above 0, up to {_MOST_ALPHA}",
    "lora_dropout": "a number from 0 to 1",
}


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """What a configuration says of the tensors: the rank and alpha of each module."""

    rank: int
    alpha: float
    is_rank_stabilized: bool
    rank_pattern: dict[str, int]
    alpha_pattern: dict[str, float]

    def rank_of(self, module: str) -> int:
        return int(_value_for(self.rank_pattern, module, self.rank))

    def alpha_of(self, module: str) -> float:
        return float(_value_for(self.alpha_pattern, module, self.alpha))

    def scale_of(self, module: str) -> float:
        """Return what B is multiplied by."""
        rank = self.rank_of(module)
        return self.alpha_of(module) / (math.sqrt(rank) if self.is_rank_stabilized else rank)


def read_config(text: bytes) -> LoraSettings:
    """Return what counts of a configuration. Raises `UploadRefused`."""
    try:
        config = parse_json(text)
    except ValueError as error:
        raise _invalid(f"it is no JSON ({shown(str(error))})") from None
    if type(config) is not dict:
        raise _invalid("it is no JSON object")
    for key, value in config.items():
        # Any other key asks for nothing only where it is off.
        if not _ALLOWED.get(key, _is_off)(value):
            if key in _NUMBERS:
                told = shown(json.dumps(value))
                raise _invalid(f"{key} is {told}, and it has to be {_NUMBERS[key]}", key)
            raise _unsupported(key, value)
    for key in ("peft_type", "r", "lora_alpha"):
        if key not in config:
            raise _invalid(f"it has no {key}", key)
    return LoraSettings(
        rank=config["r"],
        alpha=config["lora_alpha"],
        is_rank_stabilized=bool(config.get("use_rslora")),
        rank_pattern=_pattern(config, "rank_pattern", "r"),
        alpha_pattern=_pattern(config, "alpha_pattern", "lora_alpha"),
    )


def _pattern(config: dict[str, Any], key: str, like: str) -> dict[str, Any]:
    pattern: dict[str, Any] = config.get(key) or {}
    if len(pattern) > _MOST_PATTERNS:
        raise _invalid(f"{key} has more than {_MOST_PATTERNS} entries", key)
    for name, value in pattern.items():
        if not _PATTERN.match(name):
            raise UploadRefused(
                RefusalCode.CONFIG_UNSUPPORTED,
                f"{key} in adapter_config.json has the key {shown(name)!r}. Regular expressions "
                "are not taken: name each module, such as model.layers.0.self_attn.q_proj.",
                where=key,
            )
        if not _ALLOWED[like](value):
            raise _invalid(f"{key} gives {shown(name)} a value that {like} cannot have", key)
    return pattern


def _value_for(pattern: Mapping[str, Any], module: str, otherwise: Any) -> Any:
    """Return what holds for a module, by PEFT's rule (`get_pattern_key`): the first key that is its
    name, or the end of it behind a dot; one with `^` is the whole name. PEFT's dot stands for any
    letter, which tells no two modules' names apart."""
    parts = module.split(".")
    matches = {".".join(parts[start:]) for start in range(len(parts))} | {f"^{module}"}
    return next((value for key, value in pattern.items() if key in matches), otherwise)


def stored_config(settings: LoraSettings, modules: list[str]) -> str:
    """Return the JSON that is stored, the same for the same adapter. The commonest rank and alpha
    stand for all; `rank_pattern` and `alpha_pattern` have the modules with another, each by a key
    that matches it alone."""
    ranks = {module: settings.rank_of(module) for module in modules}
    alphas = {module: _whole(settings.alpha_of(module)) for module in modules}
    rank, alpha = _commonest(ranks.values()), _commonest(alphas.values())
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "use_rslora": settings.is_rank_stabilized,
        "rank_pattern": {f"^{name}": own for name, own in ranks.items() if own != rank},
        "alpha_pattern": {f"^{name}": own for name, own in alphas.items() if own != alpha},
        "target_modules": sorted(modules),
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "use_dora": False,
    }
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def _commonest(values: Any) -> Any:
    """Return the value that comes most often, the smallest of several."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def _unsupported(key: str, value: Any) -> UploadRefused:
    told = shown(json.dumps(value))
    return UploadRefused(
        RefusalCode.CONFIG_UNSUPPORTED,
        f"adapter_config.json asks for {shown(key)} = {told}, which is not served: the answers "
        "would not be the ones it was trained for. Served are LoRA and rsLoRA of linear layers of "
        "a causal language model, without biases, DoRA, added tokens, saved modules, code, or an "
        "init that changes the base. Train or save the adapter without it, or leave the key out.",
        where=shown(key),
    )


def _invalid(what: str, where: str = "") -> UploadRefused:
    return UploadRefused(
        RefusalCode.CONFIG_INVALID,
        f"adapter_config.json cannot be used: {what}. Upload the one that PEFT's save_pretrained "
        "wrote.",
        where=where,
    )
