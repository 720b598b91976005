"""The digest of a model and its tokenizer: the same on each node that has the same files, and read
in a moment however large the weights are.

Configuration, tokenizer and chat template count whole. Of each file of weights count its name, its
size, its first bytes, which in a safetensors file name and shape all tensors, and samples of the
rest, so that a model that was trained further differs from its base.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

# What the weights are, and how text is made into tokens for them. Other files of a folder, which
# one node may have and another not, do not count.
_DESCRIPTIONS: Final = (
    "config.json",
    "params.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer_config.json",
)
# The first that a folder has, complete in itself.
_TOKENIZERS: Final = (
    ("tokenizer.json",),
    ("tekken.json",),
    ("tokenizer.model",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)
# The first kind that a folder has: engines read no other then.
_WEIGHTS: Final = ("*.safetensors", "*.gguf", "*.bin", "*.pt")
_HEAD_BYTES: Final = 1024 * 1024
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 4096


def digest_of(folder: Path) -> str:
    """Return the digest, as `sha256:` and 32 hexadecimal digits; "" if the folder has no model.
    Raises `OSError` if a file cannot be read."""
    weights = _weights(folder)
    if not weights and not (folder / "config.json").is_file():
        return ""
    digest = hashlib.sha256()
    tokenizer = next((each for each in _TOKENIZERS if (folder / each[0]).is_file()), ())
    for name in (*_DESCRIPTIONS, *tokenizer):
        path = folder / name
        if path.is_file():
            digest.update(f"{name} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    for path in weights:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for part in _parts(file, size):
                digest.update(part)
    return f"sha256:{digest.hexdigest()[:32]}"


def _weights(folder: Path) -> list[Path]:
    for pattern in _WEIGHTS:
        if found := sorted(folder.glob(pattern)):
            return found
    return []


def _parts(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the first bytes of a file, and samples at even distances up to its end."""
    yield file.read(_HEAD_BYTES)
    rest = size - _HEAD_BYTES
    for number in range(1, _SAMPLES + 1 if rest > 0 else 1):
        file.seek(max(_HEAD_BYTES, _HEAD_BYTES + rest * number // _SAMPLES - _SAMPLE_BYTES))
        yield file.read(_SAMPLE_BYTES)
