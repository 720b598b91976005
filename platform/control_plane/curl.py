"""Curl commands that pages show: for the first call of the service, and for what a page shows."""

import json
import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from django.conf import settings

from gpu_workers.protocol.policy import Scope
from inference.models.catalog import models_visible_to
from tenants.models import ApiKey

KEY_FROM_ENVIRONMENT: Final = "$PENSTOCK_API_KEY"


def chat_command(model: str, key: str = KEY_FROM_ENVIRONMENT) -> str:
    """Return a command that streams an answer. Without a `key` it works once PENSTOCK_API_KEY holds
    one."""
    asked = '\n       "messages": [{"role": "user", "content": "What is Penstock?"}]'
    return _streamed("chat/completions", model, asked, key)


def completion_command(model: str, key: str = KEY_FROM_ENVIRONMENT) -> str:
    """Return a command that streams how a text goes on, as `chat_command` does an answer."""
    return _streamed("completions", model, ' "prompt": "Penstock is"', key)


def _streamed(path: str, model: str, asked: str, key: str) -> str:
    return (
        f"curl -N {settings.PENSTOCK_PUBLIC_URL}/v1/{path} \\\n"
        f'  -H "Authorization: Bearer {key}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f'  -d \'{{"model": {json.dumps(model)}, "stream": true,{asked}}}\''
    )


def first_request(key: ApiKey, secret: str) -> str | None:
    """Return a command that streams an answer with the key; None where it may ask no model."""
    names = key.allowed_models or [model.name for model in models_visible_to(key.tenant_id)]
    can_call = Scope.INFERENCE in key.scopes or Scope.ADMIN in key.scopes
    return chat_command(names[0], secret) if can_call and names else None


def report_command(tenant_id: uuid.UUID, path: str, query: Mapping[str, object]) -> str:
    """Return a command that asks the API for what a page of a tenant shows; what is None is not
    asked for."""
    given = {name: value for name, value in query.items() if value is not None}
    asked = f"?{urlencode(given, safe=',')}" if given else ""
    url = f"{settings.PENSTOCK_PUBLIC_URL}/api/v1/tenants/{tenant_id}/{path}{asked}"
    return f'curl "{url}" \\\n  -H "Authorization: Bearer {KEY_FROM_ENVIRONMENT}"'
