"""The curl command with which somebody calls the service for the first time."""

import json
from typing import Final

from django.conf import settings

KEY_FROM_ENVIRONMENT: Final = "$PENSTOCK_API_KEY"


def chat_command(model: str, key: str = KEY_FROM_ENVIRONMENT) -> str:
    """Return a command that streams an answer. Without a `key` it works once PENSTOCK_API_KEY holds
    one."""
    return (
        f"curl -N {settings.PENSTOCK_PUBLIC_URL}/v1/chat/completions \\\n"
        f'  -H "Authorization: Bearer {key}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f'  -d \'{{"model": {json.dumps(model)}, "stream": true,\n'
        '       "messages": [{"role": "user", "content": "What is Penstock?"}]}\''
    )
