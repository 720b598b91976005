"""Requests of an organisation that were refused in the last days."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

from gpu_workers.protocol.refusals import RefusalCount, RefusalNotice
from tenants.models import ApiKey
from tests.support.refused.on_record import notice_of, of_key, refuse

# Code, limit, scope, status, model, how many a day, and what the caller was told.
_WHY: Final = (
    ("requests_per_minute_exceeded", "requests_per_minute", "tier", 429, "llama-3.1-8b", 140,
     "Acme has reached its limit of 600 requests a minute (tier premium): 600 are used; try again "
     "in 14 s."),
    ("insufficient_quota", "spend_per_month", "project", 429, "llama-3.1-70b", 12,
     "The project mobile has reached its limit of $250.00 a month: $249.98 is used and this "
     "request may cost up to $0.12; it resets in 9 days."),
    ("saturated", "ttft_target_ms", "tier", 429, "llama-3.1-70b", 7,
     "llama-3.1-70b is saturated: a worker is expected to be free in 4.2 s, the first token is "
     "promised within 1 s (tier premium), and the project web does not wait for longer. Try again "
     "in 4 s."),
    ("context_length_exceeded", "", "", 400, "llama-3.1-8b", 5,
     "The context of llama-3.1-8b is 8192 tokens; the prompt, 301224 bytes of text, is longer "
     "however it is tokenized."),
    ("invalid_request", "", "", 400, "", 3,
     "The request is not valid: see its parameter 'temperature'."),
    ("model_not_found", "", "", 404, "(unknown)", 2,
     "The request names a model that does not exist, or that its API key may not call."),
    ("api_key_expired", "", "", 401, "", 1,
     "This API key expired at 2026-11-20 09:00:00 UTC; make a new one."),
)  # fmt: skip


def have_refusals(keys: list[ApiKey]) -> None:
    """Write them; within an operator's scope."""
    now = datetime.now(UTC)
    told: list[RefusalCount | RefusalNotice] = []
    for place, (code, limit, scope, status, model, count, message) in enumerate(_WHY):
        key = keys[place % len(keys)]
        reason = {"code": code, "limit": limit, "scope": scope, "model": model}
        told += [
            of_key(key, now - timedelta(days=day), count=count + day % 4, **reason)
            for day in range(12)
        ]
        at = now - timedelta(minutes=3 + 19 * place * place)
        told.append(
            notice_of(
                key, at, status=status, message=message, request_id=str(uuid.uuid4()), **reason
            )
        )
    refuse(*told)
