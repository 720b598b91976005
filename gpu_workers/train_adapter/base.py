"""The model that an adapter is trained for."""

from dataclasses import dataclass

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from gpu_workers.train_adapter.recipe import ALL_LINEAR


class BaseRefused(ValueError):
    """No adapter can be trained on this base. `code` says why."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{reason}.")
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Base:
    """A model, its tokenizer with a chat template, and the longest context in tokens."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    context_tokens: int

    @property
    def hidden_size(self) -> int:
        return int(self.model.config.get_text_config().hidden_size)


def load_base(name: str, device: str) -> Base:
    """Load a folder or hub name onto `device`: bfloat16 on a GPU, float32 on the CPU, which has few
    fast ways with anything else. Raises BaseRefused."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        reason = f"The base {name} cannot be loaded: {error}. Expected a folder with a model and "
        raise BaseRefused("no_base", f"{reason}its tokenizer in safetensors, or a name") from error
    if not tokenizer.chat_template:
        reason = f"The tokenizer of {name} has no chat template. Expected one that serving uses too"
        raise BaseRefused("no_chat_template", reason)
    return Base(
        model=model.to(device),
        tokenizer=tokenizer,
        context_tokens=int(model.config.get_text_config().max_position_embeddings),
    )


def linear_layers(model: PreTrainedModel, targets: tuple[str, ...]) -> list[str]:
    """Return the last names of the layers that `targets` mean, sorted; raises BaseRefused for a
    name that no linear layer has, and for the output layer, which engines keep without adapters."""
    output = model.get_output_embeddings()
    known = {
        name.rsplit(".", 1)[-1]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not output
    }
    if targets == (ALL_LINEAR,):
        return sorted(known)
    unknown = set(targets) - known
    if unknown:
        reason = (
            f"The base has no linear layer '{min(unknown)}' that an adapter may change. Expected"
        )
        raise BaseRefused("unknown_target", f"{reason} some of {', '.join(sorted(known))}")
    return sorted(set(targets))
