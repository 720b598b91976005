"""One request of which nothing remains."""

import json
from typing import Any

from django.core.cache import cache
from django.db import transaction
from django.test import Client

from tests.isolation.credentials import Credential


def ask(
    client: Client, credential: Credential, method: str, address: str, body: object = None
) -> Any:
    """One request, of which nothing remains."""
    cache.clear()
    point = transaction.savepoint()
    try:
        return client.generic(
            method,
            address,
            b"" if body is None else json.dumps(body),
            content_type="application/json",
            headers=credential.headers,
        )
    finally:
        transaction.savepoint_rollback(point)
