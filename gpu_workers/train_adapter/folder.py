"""The folder of an adapter, as PEFT writes it: a configuration and tensors, nothing that runs."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import save_file

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE


def save_adapter(adapter: PeftModel, folder: Path, *, base_name: str) -> None:
    """Write the adapter in bfloat16 as `folder`, which is there whole or not at all; replaces an
    adapter that is there.

    The same adapter gives the same bytes, which PEFT's own `save_pretrained` does not: it lists a
    set in any order, and adds a README with the base's path.
    """
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in get_peft_model_state_dict(adapter, save_embedding_layers=False).items()
    }
    settings = adapter.peft_config["default"].to_dict() | {
        "base_model_name_or_path": base_name,
        "inference_mode": True,
    }
    with _replaced(folder) as unfinished:
        save_file(tensors, unfinished / WEIGHTS_FILE, metadata={"format": "pt"})
        text = json.dumps(settings, indent=2, sort_keys=True, default=sorted)
        (unfinished / CONFIG_FILE).write_text(f"{text}\n", encoding="utf-8")


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """Give an empty folder beside `folder`, and put it in its place once it is written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as beside:
        unfinished, old = Path(beside, "new"), Path(beside, "old")
        unfinished.mkdir()
        yield unfinished
        for file in unfinished.iterdir():
            file.chmod(0o644)
        if folder.exists():
            folder.rename(old)
        unfinished.rename(folder)
