"""Train the demo model from nothing: `python -m gpu_workers.demo_model.train`.

Everything follows from the seed: the corpus, the order of batches and the initial weights. A
checkpoint in the work folder lets an interrupted run go on; no step needs the network.
"""

import argparse
import logging
import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.corpus import conversation, single_question
from gpu_workers.demo_model.examples import OPENING_TOKENS, Example, encoded, grouped
from gpu_workers.demo_model.tokenizer import (
    BOS,
    CONTEXT_TOKENS,
    END,
    PAD,
    save_tokenizer,
    trained_tokenizer,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a run depends on; times are wall clock on two CPU cores."""

    seed: int = 20
    steps: int = 3000
    conversations_per_step: int = 5
    short_questions_per_step: int = 32
    tokenizer_conversations: int = 30_000
    peak_learning_rate: float = 2e-3
    warmup_steps: int = 300
    weight_decay: float = 0.1
    embedding_dropout: float = 0.05
    threads: int = 2
    steps_between_checkpoints: int = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-folder", type=Path, default=MODEL_FOLDER)
    parser.add_argument("--work-folder", type=Path, default=Path("var/demo_model"))
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--restart", action="store_true", help="ignore an earlier checkpoint")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if arguments.restart:
        shutil.rmtree(arguments.work_folder, ignore_errors=True)
    train(Recipe(steps=arguments.steps), arguments.model_folder, arguments.work_folder)


def train(recipe: Recipe, model_folder: Path, work_folder: Path) -> None:
    """Train by the recipe; a checkpoint of the same recipe in `work_folder` is resumed."""
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    work_folder.mkdir(parents=True, exist_ok=True)
    tokenizer = trained_tokenizer(
        message.content
        for index in range(recipe.tokenizer_conversations)
        for message in conversation(recipe.seed, index)
    )
    model = new_model(tokenizer)
    log.info(f"{model.num_parameters():,} parameters, {len(tokenizer):,} tokens")
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.peak_learning_rate,
        betas=(0.9, 0.98),
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    checkpoint = work_folder / "checkpoint.pt"
    first_step = _restored(checkpoint, recipe, model, optimizer)
    dropout = torch.nn.Dropout(recipe.embedding_dropout)
    model.get_input_embeddings().register_forward_hook(
        lambda module, _inputs, output: dropout(output) if module.training else output
    )
    started_at = time.monotonic()
    losses: list[float] = []
    model.train()
    for step in range(first_step, recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        torch.manual_seed(recipe.seed * 1_000_003 + step)
        losses.append(_trained_step(model, optimizer, tokenizer, recipe, step))
        done = step + 1
        if done % 100 == 0:
            seconds = time.monotonic() - started_at
            mean = sum(losses[-100:]) / len(losses[-100:])
            log.info(f"step {done}/{recipe.steps} loss {mean:.4f} {seconds:.0f} s")
        if done % recipe.steps_between_checkpoints == 0 or done == recipe.steps:
            _save_checkpoint(checkpoint, recipe, model, optimizer, done)
    save(model, tokenizer, model_folder)


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """An untrained Llama of about four million parameters; head_dim 64 suits every vLLM backend."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids(BOS),
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
        initializer_range=0.02,
        use_cache=True,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine down to a fiftieth of the peak."""
    if step < recipe.warmup_steps:
        return recipe.peak_learning_rate * (step + 1) / recipe.warmup_steps
    share = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return recipe.peak_learning_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model in bfloat16 safetensors with all that a server needs beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.eval()
    model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        bos_token_id=model.config.bos_token_id,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
    )
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    log.info(f"saved {folder.name}: {size / 1e6:.1f} MB")


def _trained_step(
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    step: int,
) -> float:
    """One update on the examples of this step; the weighted mean loss per answer token."""
    batch = _batch(tokenizer, recipe, step)
    total_weight = sum(sum(example.weights) for example in batch)
    total = 0.0
    for group in grouped(batch):
        loss = _loss(model, group, tokenizer.convert_tokens_to_ids(PAD)) / total_weight
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def _batch(tokenizer: PreTrainedTokenizerFast, recipe: Recipe, step: int) -> list[Example]:
    """Whole conversations, and many single questions of which only the first words are answered.

    Which fact is meant shows in the first words of an answer; the rest is soon known by heart.
    """
    whole, short = recipe.conversations_per_step, recipe.short_questions_per_step
    conversations = (
        encoded(tokenizer, conversation(recipe.seed, index))
        for index in range(step * whole, (step + 1) * whole)
    )
    questions = (
        encoded(tokenizer, single_question(recipe.seed, index), longest_answer=OPENING_TOKENS)
        for index in range(step * short, (step + 1) * short)
    )
    return [*conversations, *questions]


def _loss(model: LlamaForCausalLM, group: list[Example], pad: int) -> torch.Tensor:
    """Summed, weighted cross entropy; the output layer runs only where an answer is."""
    longest = max(len(example.token_ids) for example in group)
    inputs = torch.full((len(group), longest), pad)
    weights = torch.zeros((len(group), longest))
    for row, example in enumerate(group):
        inputs[row, : len(example.token_ids)] = torch.tensor(example.token_ids)
        weights[row, : len(example.weights)] = torch.tensor(example.weights)
    # Padding stands at the end, where the causal mask hides it: no attention mask is needed.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state[:, :-1]
        is_answer = weights[:, 1:] > 0
        logits = model.lm_head(hidden[is_answer])
    losses = functional.cross_entropy(logits.float(), inputs[:, 1:][is_answer], reduction="none")
    return (losses * weights[:, 1:][is_answer]).sum()


def _restored(
    checkpoint: Path, recipe: Recipe, model: LlamaForCausalLM, optimizer: torch.optim.Optimizer
) -> int:
    """The step to go on from: 0 without a checkpoint of the same recipe and corpus."""
    if not checkpoint.exists():
        return 0
    saved: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    if saved["recipe"] != repr(recipe):
        return 0
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    log.info(f"resumed after step {saved['steps_done']}")
    return int(saved["steps_done"])


def _save_checkpoint(
    checkpoint: Path,
    recipe: Recipe,
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    steps_done: int,
) -> None:
    """Written beside and renamed, so that an interruption leaves the last whole checkpoint."""
    unfinished = checkpoint.with_suffix(".new")
    torch.save(
        {
            "recipe": repr(recipe),
            "steps_done": steps_done,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        },
        unfinished,
    )
    unfinished.replace(checkpoint)


if __name__ == "__main__":
    main()
