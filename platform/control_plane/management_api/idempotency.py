"""The header Idempotency-Key: a POST that is repeated with it, within 24 h and by the same caller,
finds what the first one did and is answered as that was, but for secrets, which are told once.

Kept in the transaction of what was done: what failed left nothing, and can be tried again.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, Final

from django.db import connection
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.errors import IdempotencyKeyInUse, IdempotencyKeyReused
from inference.errors import InvalidRequest
from inference.models import IdempotentCall
from inference.models.idempotency import KEPT, MAX_KEY_CHARACTERS
from tenants.isolation.audit_actor import Actor
from tenants.models import Tenant

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"

_KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY_CHARACTERS}}}")


def key_of(request: Request) -> str | None:
    """Return the key of a POST. Raises `InvalidRequest` for one that can be none."""
    key: str | None = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if request.method != "POST" or key is None:
        return None
    if not _KEY.fullmatch(key):
        raise InvalidRequest(
            f"{HEADER} takes 1 to {MAX_KEY_CHARACTERS} visible ASCII characters without spaces, "
            "e.g. a UUID.",
            param=HEADER,
            code="bad_idempotency_key",
        )
    return key


def answer_once(
    request: Request,
    key: str,
    act: Callable[[], Any],
    *,
    tenant: Tenant,
    caller: Actor,
    secrets: frozenset[str],
) -> Any:
    """Return the answer of `act`, or the one that it gave when it was called under this key before,
    with null for `secrets`. Runs in the transaction of the tenant's scope.

    Raises `IdempotencyKeyInUse` while the first is still running, and `IdempotencyKeyReused` for
    another call under the same key.
    """
    name = f"{caller.kind}:{caller.id}"
    _lock(f"{tenant.id} {name} {key}")
    digest = _digest(request)
    kept = IdempotentCall.objects.filter(caller=name, key=key)
    before = kept.filter(created_at__gt=timezone.now() - KEPT).first()
    if before is not None:
        if bytes(before.request_digest) != digest:
            raise IdempotencyKeyReused
        return Response(json.loads(before.answer), status=before.status, headers={REPLAYED: "true"})
    kept.delete()
    response = act()
    if not isinstance(response, Response):  # a file that is made while it is read
        return response
    told = {**response.data, **dict.fromkeys(secrets & response.data.keys())}
    IdempotentCall.objects.create(
        tenant=tenant,
        caller=name,
        key=key,
        request_digest=digest,
        status=response.status_code,
        answer=JSONRenderer().render(told).decode(),
    )
    return response


def _lock(name: str) -> None:
    """Hold the key until the transaction ends; what it did is committed before it is let go."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        if not cursor.fetchone()[0]:
            raise IdempotencyKeyInUse


def _digest(request: Request) -> bytes:
    body: Any = request.data
    told = json.dumps([request.method, request.path, body], sort_keys=True)
    return hashlib.sha256(told.encode()).digest()
