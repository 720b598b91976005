"""The training loop: AdamW on the adapter alone, everything from the seed."""

import logging
import math
import os
import random
import time
from collections.abc import Iterator, Sequence

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch.nn import functional

from gpu_workers.demo_model.examples import Example, grouped
from gpu_workers.train_adapter.base import Base, linear_layers
from gpu_workers.train_adapter.recipe import Recipe, usual_learning_rate

log = logging.getLogger(__name__)

LONGEST_GRADIENT = 1.0
PASS_TOKENS = 4096  # what goes through the model at once; more costs memory
LINES_OF_PROGRESS = 20


def be_deterministic(seed: int, threads: int) -> None:
    """Let every later step of torch follow from the seed; call it before anything is on a GPU.

    Sums are split by the number of threads, so that other `threads` give other last digits.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is random without it
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # time for nothing: we read none
    torch.set_num_threads(threads)
    torch.manual_seed(seed)


def new_adapter(base: Base, recipe: Recipe) -> PeftModel:
    """Return the base with an untrained adapter, which changes nothing yet; raises BaseRefused."""
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=linear_layers(base.model, recipe.targets),
    )
    return get_peft_model(base.model, config)


def train(adapter: PeftModel, base: Base, examples: Sequence[Example], recipe: Recipe) -> None:
    """Train the adapter by the recipe."""
    weights = [weight for weight in adapter.parameters() if weight.requires_grad]
    peak = recipe.learning_rate or usual_learning_rate(base.hidden_size)
    optimizer = torch.optim.AdamW(weights, lr=peak, weight_decay=0.0)
    steps = recipe.epochs * math.ceil(len(examples) / recipe.conversations_per_step)
    log.info(
        f"{sum(weight.numel() for weight in weights):,} weights, {len(examples):,} examples, "
        f"{steps:,} steps, learning rate {peak:.2g}"
    )
    adapter.train()
    started_at, losses = time.monotonic(), list[float]()
    for step, batch in enumerate(_batches(examples, recipe)):
        for group in optimizer.param_groups:
            group["lr"] = peak * recipe.share_of_peak(step, steps)
        losses.append(_add_gradients(adapter, batch))
        torch.nn.utils.clip_grad_norm_(weights, LONGEST_GRADIENT)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if len(losses) == max(1, steps // LINES_OF_PROGRESS) or step + 1 == steps:
            seconds = time.monotonic() - started_at
            log.info(f"{step + 1}/{steps} loss {sum(losses) / len(losses):.4f} {seconds:.0f} s")
            losses.clear()


def _batches(examples: Sequence[Example], recipe: Recipe) -> Iterator[list[Example]]:
    for epoch in range(recipe.epochs):
        shuffled = random.Random(f"{recipe.seed}/{epoch}").sample(examples, k=len(examples))
        for first in range(0, len(shuffled), recipe.conversations_per_step):
            yield shuffled[first : first + recipe.conversations_per_step]


def _add_gradients(adapter: PeftModel, batch: Sequence[Example]) -> float:
    """Add the gradients of the batch's mean loss a token; return that loss."""
    total_weight = sum(sum(example.weights) for example in batch)
    total = 0.0
    for group in grouped(batch, PASS_TOKENS):
        loss = _loss(adapter, group) / total_weight
        loss.backward()
        total += loss.item()
    return total


def _loss(adapter: PeftModel, group: Sequence[Example]) -> torch.Tensor:
    """Return the summed, weighted cross entropy of the tokens that have a weight."""
    longest = max(len(example.token_ids) for example in group)
    inputs = torch.zeros((len(group), longest), dtype=torch.long)
    weights = torch.zeros((len(group), longest))
    for row, example in enumerate(group):
        inputs[row, : len(example.token_ids)] = torch.tensor(example.token_ids)
        weights[row, : len(example.weights)] = torch.tensor(example.weights)
    inputs, weights = inputs.to(adapter.device), weights.to(adapter.device)
    # Padding stands at the end, where the causal mask hides it: no attention mask is needed.
    logits = adapter(input_ids=inputs, use_cache=False).logits[:, :-1]
    is_learnt = weights[:, 1:] > 0
    losses = functional.cross_entropy(
        logits[is_learnt].float(), inputs[:, 1:][is_learnt], reduction="none"
    )
    return (losses * weights[:, 1:][is_learnt]).sum()
