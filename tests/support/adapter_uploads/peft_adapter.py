"""An adapter made by PEFT, and what it answers: for the engine's environment, which has PEFT.

    .venv-engine/bin/python tests/support/adapter_uploads/peft_adapter.py make FOLDER < settings
    .venv-engine/bin/python tests/support/adapter_uploads/peft_adapter.py answer FOLDER

Both print JSON: `modules`, the linear layers of the base with their sizes; `logits` of a prompt;
`scales`, by which the engine's own reader and PEFT would multiply each module's product.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

PROMPT: Final = [[1, 5, 9, 30, 2, 7]]


def base() -> Any:
    torch.manual_seed(3)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=False,
        )
    )


def make(folder: Path, settings: dict[str, Any]) -> Any:
    model = get_peft_model(base(), LoraConfig(task_type="CAUSAL_LM", **settings))
    torch.manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3)
    model.save_pretrained(str(folder))
    return model


def answer(model: Any) -> list[float]:
    with torch.no_grad():
        logits: list[float] = model.eval()(torch.tensor(PROMPT)).logits[0, -1].tolist()
    return logits


def scales(model: Any, folder: Path) -> dict[str, list[float]]:
    from vllm.lora.peft_helper import PEFTHelper

    helper = PEFTHelper.from_local_dir(str(folder), None)
    return {
        name.removeprefix("base_model.model."): [
            module.scaling["default"],
            helper.get_rank_and_scaling(name.removeprefix("base_model.model."))[1],
        ]
        for name, module in model.named_modules()
        if hasattr(module, "lora_A")
    }


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2])
    if verb == "make":
        model = make(folder, json.load(sys.stdin))
    else:
        model = PeftModel.from_pretrained(base(), str(folder))
    modules = {
        name: [module.in_features, module.out_features]
        for name, module in base().named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    }
    found = {"modules": modules, "logits": answer(model), "scales": scales(model, folder)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
