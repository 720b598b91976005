"""Adapters as PEFT makes them, and greedy answers by PEFT and transformers in float32, one prompt
at a time; for the engine environment's Python.

    .venv-engine/bin/python -m tests.support.greedy_answers.by_peft make FOLDER < SETTINGS
    .venv-engine/bin/python -m tests.support.greedy_answers.by_peft answer < QUESTIONS

`make` reads `{name: {"seed": ..., "strength": ..., **LoraConfig}}` and writes a folder for each.
`answer` reads `{"folders": {name: folder}, "asked": [[name, messages], ...], "max_tokens": ...}`,
where the name "" is the base, and prints an answer for each as JSON (see `compared.Reference`).
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from gpu_workers.demo_model import MODEL_FOLDER

LIKELIEST: Final = 8


def make(folder: Path, settings: dict[str, dict[str, Any]]) -> None:
    """Write seeded adapters; `strength` is the deviation of B, whose product with A is scaled by
    what the rest of the settings say."""
    for name, config in settings.items():
        seed, strength = config.pop("seed"), config.pop("strength")
        model = get_peft_model(_base(), LoraConfig(task_type="CAUSAL_LM", **config))
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if "lora_A" in parameter_name:
                    parameter.normal_(0, parameter.shape[1] ** -0.5)
                elif "lora_B" in parameter_name:
                    parameter.normal_(0, strength)
        model.save_pretrained(str(folder / name))


def answers(
    folders: dict[str, str], asked: list[tuple[str, list[dict[str, str]]]], max_tokens: int
) -> list[dict[str, Any]]:
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    found: list[dict[str, Any]] = [{}] * len(asked)
    for name in sorted({name for name, _ in asked}):
        model = _base()
        if name:
            model = PeftModel.from_pretrained(model, folders[name])
        model.eval()
        for number, (adapter, messages) in enumerate(asked):
            if adapter == name:
                found[number] = _answer(model, tokenizer, messages, max_tokens)
    return found


def _base() -> Any:
    return AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=torch.float32)


def _answer(
    model: Any, tokenizer: Any, messages: list[dict[str, str]], max_tokens: int
) -> dict[str, Any]:
    prompt = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        made = model.generate(
            **prompt,
            do_sample=False,
            temperature=None,
            max_new_tokens=max_tokens,
            output_logits=True,
            return_dict_in_generate=True,
        )
    prompt_tokens = prompt["input_ids"].shape[1]
    token_ids = made.sequences[0, prompt_tokens:].tolist()
    has_ended = token_ids[-1] == tokenizer.eos_token_id
    likeliest = []
    for logits in made.logits:
        logprobs, ids = torch.log_softmax(logits[0].double(), dim=-1).topk(LIKELIEST)
        likeliest.append(list(zip(ids.tolist(), logprobs.tolist(), strict=True)))
    shown = token_ids[:-1] if has_ended else token_ids
    return {
        "token_ids": token_ids,
        "likeliest": likeliest,
        "texts": [tokenizer.decode(shown[:length]) for length in range(len(shown) + 1)],
        "finish_reason": "stop" if has_ended else "length",
        "prompt_tokens": prompt_tokens,
    }


def main() -> None:
    torch.set_num_threads(2)
    given = json.load(sys.stdin)
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), given)
    else:
        json.dump(answers(given["folders"], given["asked"], given["max_tokens"]), sys.stdout)


if __name__ == "__main__":
    main()
