"""Train the demo model from nothing: `python -m gpu_workers.demo_model.train`.

Everything follows from the seed: the corpus, the order of batches and the initial weights.
Checkpoints in the work folder let an interrupted run go on; no step needs the network.
"""

import argparse
import logging
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.corpus import conversation, single_question
from gpu_workers.demo_model.examples import OPENING_TOKENS, Example, encoded, grouped
from gpu_workers.demo_model.forms.corpus import filled_form
from gpu_workers.demo_model.recipe import Part, Recipe
from gpu_workers.demo_model.tokenizer import (
    BOS,
    CHAT_TEMPLATE,
    CONTEXT_TOKENS,
    END,
    PAD,
    save_tokenizer,
    trained_tokenizer,
    words_and_digits,
)

log = logging.getLogger(__name__)

FORM_WEIGHT: Final = 2.0  # of each token, so that forms weigh about what the facts do


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-folder", type=Path, default=MODEL_FOLDER)
    parser.add_argument("--work-folder", type=Path, default=Path("var/demo_model"))
    parser.add_argument("--restart", action="store_true", help="ignore earlier checkpoints")
    parser.add_argument(
        "--last-part",
        action="store_true",
        help="go on from the model in --model-folder, and train the last part alone",
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if arguments.restart:
        shutil.rmtree(arguments.work_folder, ignore_errors=True)
    train(Recipe(), arguments.model_folder, arguments.work_folder, last_part=arguments.last_part)


def train(recipe: Recipe, model_folder: Path, work_folder: Path, *, last_part: bool) -> None:
    """Train by the recipe, going on from the checkpoints of the same recipe in `work_folder`. With
    `last_part` alone what is in `model_folder` is what that begins with."""
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    work_folder.mkdir(parents=True, exist_ok=True)
    if last_part:  # its embeddings are of its tokens
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model_folder)
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.backend_tokenizer.pre_tokenizer = words_and_digits()
    else:
        tokenizer = trained_tokenizer(
            message.content
            for index in range(recipe.tokenizer_conversations)
            for message in conversation(recipe.seed, index)
        )
    training = Training(recipe, tokenizer)
    log.info(f"{training.model.num_parameters():,} parameters, {len(tokenizer):,} tokens")
    (_, trunk), *others = recipe.parts()
    branches, last = others[: len(recipe.branches)], others[len(recipe.branches) :]
    if last_part:
        begun = LlamaForCausalLM.from_pretrained(model_folder, dtype=torch.float32).state_dict()
        last = last[-1:]
    else:
        trunk_end = work_folder / "trunk.pt"
        training.run(trunk, 0, trunk_end)
        weights = []
        for number, (first_step, branch) in enumerate(branches):
            training.load(trunk_end, trunk)
            training.run(branch, first_step, work_folder / f"branch-{number}.pt")
            weights.append(
                {name: each.clone() for name, each in training.model.state_dict().items()}
            )
        begun = mean_of(weights)
    for number, (first_step, part) in enumerate(last):
        training.begin_with(begun)
        training.run(part, first_step, work_folder / f"last-{number}.pt")
        begun = training.model.state_dict()
    save(training.model, tokenizer, model_folder)


class Training:
    """Model and optimizer of one run, with a checkpoint file for each part."""

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.model = new_model(tokenizer)
        self._optimizer = self._new_optimizer()
        dropout = self._dropout = torch.nn.Dropout(0.0)
        self.model.get_input_embeddings().register_forward_hook(
            lambda module, _inputs, output: dropout(output) if module.training else output
        )

    def begin_with(self, weights: dict[str, torch.Tensor]) -> None:
        """Go on from other weights, as precise as they are saved, with a new optimizer."""
        saved = {name: each.to(torch.bfloat16).float() for name, each in weights.items()}
        self.model.load_state_dict(saved)
        self._optimizer = self._new_optimizer()

    def _new_optimizer(self) -> torch.optim.Optimizer:
        decay = self.recipe.weight_decay
        return torch.optim.AdamW(
            self.model.parameters(), betas=(0.9, 0.98), weight_decay=decay, fused=True
        )

    def run(self, part: Part, first_step: int, checkpoint: Path) -> None:
        """Train one part to its end, from its checkpoint if there is one."""
        done = self.load(checkpoint, part) if checkpoint.exists() else 0
        self._dropout.p = part.embedding_dropout
        self.model.train()
        started_at = time.monotonic()
        losses: list[float] = []
        for step in range(done, part.steps):
            for group in self._optimizer.param_groups:
                group["lr"] = part.learning_rate(step)
            torch.manual_seed(self.recipe.seed * 1_000_003 + first_step + step)
            losses.append(self._step(part, first_step + step))
            done = step + 1
            if done % 100 == 0:
                seconds = time.monotonic() - started_at
                mean = sum(losses[-100:]) / len(losses[-100:])
                log.info(f"{checkpoint.stem} {done}/{part.steps} loss {mean:.4f} {seconds:.0f} s")
            if done % self.recipe.steps_between_checkpoints == 0 or done == part.steps:
                self._save_checkpoint(checkpoint, part, done)

    def load(self, checkpoint: Path, part: Part) -> int:
        """Load weights and optimizer from a checkpoint; return the steps done by then.

        Raises SystemExit where the checkpoint is of another recipe.
        """
        saved: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        if saved["recipe"] != self._recipe_of(part):
            raise SystemExit(f"{checkpoint} is of another recipe: give --restart to begin anew")
        self.model.load_state_dict(saved["model"])
        self._optimizer.load_state_dict(saved["optimizer"])
        return int(saved["steps_done"])

    def _step(self, part: Part, number: int) -> float:
        """Update on the examples of step `number`; return their weighted mean loss per token."""
        batch = self._batch(part, number)
        total_weight = sum(sum(example.weights) for example in batch)
        total = 0.0
        for group in grouped(batch):
            loss = _loss(self.model, group, self.tokenizer.convert_tokens_to_ids(PAD))
            (loss / total_weight).backward()
            total += loss.item() / total_weight
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return total

    def _batch(self, part: Part, number: int) -> list[Example]:
        """Return whole conversations, and many questions with only the first words of the answer.

        Which fact is meant shows in the first words of an answer; the rest is soon known by heart.
        """
        seed, whole = self.recipe.seed, self.recipe.conversations_per_step
        short, is_rough = part.questions_per_step, part.asks_roughly
        conversations = (
            encoded(
                self.tokenizer,
                conversation(seed, index, is_rough=is_rough),
                splits_words=part.splits_words,
            )
            for index in range(number * whole, (number + 1) * whole)
        )
        questions = (
            encoded(
                self.tokenizer,
                single_question(seed, index, is_rough=is_rough),
                longest_answer=OPENING_TOKENS,
                splits_words=part.splits_words,
            )
            for index in range(number * short, (number + 1) * short)
        )
        forms = (
            encoded(self.tokenizer, filled_form(seed, index), weight=FORM_WEIGHT)
            for index in range(number * part.forms_per_step, (number + 1) * part.forms_per_step)
        )
        return [*conversations, *questions, *forms]

    def _recipe_of(self, part: Part) -> str:
        """Return what a part's weights follow from: a branch may be added to a finished run."""
        return repr((replace(self.recipe, branches=(), last=()), part))

    def _save_checkpoint(self, checkpoint: Path, part: Part, steps_done: int) -> None:
        """Save beside and rename, so that an interruption leaves the last whole checkpoint."""
        unfinished = checkpoint.with_suffix(".new")
        torch.save(
            {
                "recipe": self._recipe_of(part),
                "steps_done": steps_done,
                "model": self.model.state_dict(),
                "optimizer": self._optimizer.state_dict(),
            },
            unfinished,
        )
        unfinished.replace(checkpoint)


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return an untrained Llama of about four million parameters.

    Its head_dim is 64, which every attention backend of vLLM supports.
    """
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


def mean_of(weights: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the mean of models of the same shape, name by name."""
    return {name: torch.stack([each[name] for each in weights]).mean(dim=0) for name in weights[0]}


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
        # What a request gets that names no temperature: so small a model is best when it is calm.
        do_sample=True,
        temperature=0.3,
    )
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    log.info(f"saved {folder.name}: {size / 1e6:.1f} MB")


def _loss(model: LlamaForCausalLM, group: list[Example], pad: int) -> torch.Tensor:
    """Return the summed, weighted cross entropy; the output layer runs only on answers."""
    longest = max(len(example.token_ids) for example in group)
    inputs = torch.full((len(group), longest), pad)
    weights = torch.zeros((len(group), longest))
    for row, example in enumerate(group):
        inputs[row, : len(example.token_ids)] = torch.tensor(example.token_ids)
        weights[row, : len(example.weights)] = torch.tensor(example.weights)
    # Padding stands at the end, where the causal mask hides it: no attention mask is needed.
    hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state[:, :-1]
    is_answer = weights[:, 1:] > 0
    logits = model.lm_head(hidden[is_answer])
    losses = functional.cross_entropy(logits, inputs[:, 1:][is_answer], reduction="none")
    return (losses * weights[:, 1:][is_answer]).sum()


if __name__ == "__main__":
    main()
