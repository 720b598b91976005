"""Blocks of code in Markdown."""

import re
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(file: Path) -> list[tuple[str, str]]:
    """Return each block that a file prints: its language and its text."""
    text = file.read_text(encoding="utf-8")
    return [(found["language"], found["text"]) for found in _BLOCK.finditer(text)]
