"""What the replayed engine answers with; `record` writes it."""

import json
from pathlib import Path
from typing import Final

RECORDING: Final = Path(__file__).with_name("recording.json")


def recordings() -> dict[tuple[int, ...], list[int]]:
    """Return prompt -> answer, both as token ids."""
    recorded = json.loads(RECORDING.read_text(encoding="utf-8"))["recordings"]
    return {tuple(each["prompt_token_ids"]): each["token_ids"] for each in recorded}
