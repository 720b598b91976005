"""A chat completion that a gateway takes, and bodies that differ from it."""

import json
from typing import Any

from tests.support.gateways.cast import MODEL

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]
GOOD = {"model": MODEL, "messages": MESSAGES}


def body(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()
