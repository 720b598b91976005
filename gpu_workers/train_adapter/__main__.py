"""`python -m gpu_workers.train_adapter`: flags, and refusals as sentences."""

import argparse
import logging
import os
import sys
from pathlib import Path

from gpu_workers.demo_model import MODEL_FOLDER, MODEL_NAME
from gpu_workers.train_adapter.conversations import DataRefused, read_conversations
from gpu_workers.train_adapter.recipe import ALL_LINEAR, Recipe

# What a folder may hold that a new adapter takes the place of: what trainers write.
REPLACEABLE = {"adapter_config.json", "adapter_model.safetensors", "README.md"}


def main() -> None:
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    _check_folder(arguments.out)
    try:
        conversations = read_conversations(arguments.data)
    except DataRefused as error:
        sys.exit(str(error))
    # Torch and peft take seconds to import: wrong data is refused before.
    import torch

    from gpu_workers.train_adapter.base import BaseRefused, load_base
    from gpu_workers.train_adapter.encoding import encoded_conversations
    from gpu_workers.train_adapter.folder import save_adapter
    from gpu_workers.train_adapter.training import be_deterministic, new_adapter, train

    recipe = _recipe(arguments)
    be_deterministic(recipe.seed, arguments.threads)
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        base = load_base(arguments.base, device)
        examples = encoded_conversations(
            base.tokenizer, conversations, context_tokens=base.context_tokens, file=arguments.data
        )
        adapter = new_adapter(base, recipe)
    except (BaseRefused, DataRefused) as error:
        sys.exit(str(error))
    train(adapter, base, examples, recipe)
    save_adapter(adapter, arguments.out, base_name=_public_name(arguments.base))
    size = sum(path.stat().st_size for path in arguments.out.iterdir())
    logging.info(f"saved {arguments.out}: {size / 1e6:.2f} MB")


def _arguments() -> argparse.Namespace:
    usual = Recipe()
    parser = argparse.ArgumentParser(
        prog="python -m gpu_workers.train_adapter",
        description="Train a LoRA adapter on conversations in OpenAI's chat format.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, help="a conversation a line, in OpenAI's chat format")
    add("--out", type=Path, required=True, help="the folder to write, or to replace an adapter in")
    add("--base", default=str(MODEL_FOLDER), help="the folder or hub name of the served base")
    add("--rank", type=_whole, default=usual.rank, help="the adapter's size; pools have a limit")
    add("--alpha", type=_whole, default=usual.alpha, help="the adapter's weight is alpha / rank")
    add("--targets", default=ALL_LINEAR, help="linear layers, as in q_proj,v_proj")
    add("--dropout", type=_share, default=usual.dropout, help="of what enters the adapter")
    add("--epochs", type=_whole, default=usual.epochs, help="how often each conversation is seen")
    add("--batch", type=_whole, default=usual.conversations_per_step, help="conversations a step")
    add("--learning-rate", type=_rate, help="the highest; by the width of the base if not given")
    add("--seed", type=int, default=usual.seed, help="the same seed and data give the same bytes")
    add(
        "--threads",
        type=_whole,
        default=_cores(),
        help="of the CPU; part of what bytes follow from",
    )
    add("--device", choices=("cpu", "cuda"), help="a GPU if there is one, if not given")
    return parser.parse_args()


def _recipe(arguments: argparse.Namespace) -> Recipe:
    return Recipe(
        rank=arguments.rank,
        alpha=arguments.alpha,
        targets=tuple(arguments.targets.split(",")),
        dropout=arguments.dropout,
        epochs=arguments.epochs,
        conversations_per_step=arguments.batch,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
    )


def _check_folder(folder: Path) -> None:
    """Exit, before any minute is spent, where the folder has what training must not remove."""
    if not folder.exists():
        return
    if not folder.is_dir():
        sys.exit(f"{folder} is a file. Expected a new folder, or one with an adapter to replace.")
    others = {path.name for path in folder.iterdir()} - REPLACEABLE
    if others:
        sys.exit(
            f"{folder} has other files than an adapter's ({min(others)}). Expected a new folder, "
            "or one with an adapter to replace."
        )


def _public_name(base: str) -> str:
    """Return what the adapter's configuration calls its base: never a path of this machine."""
    if Path(base).resolve() == MODEL_FOLDER.resolve():
        return MODEL_NAME
    return Path(base).resolve().name if Path(base).exists() else base


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def _rate(text: str) -> float:
    if not 0 < _number(text) <= 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0 and at most 1")
    return float(text)


def _share(text: str) -> float:
    if not 0 <= _number(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to below 1")
    return float(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


if __name__ == "__main__":
    main()
