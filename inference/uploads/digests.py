"""The MD5 of an upload's parts in one order, computed by Celery: whoever serves others has no time
to read a gigabyte.

A tenant has one of them computed at a time, and of an upload `MOST_ORDERS` at most. What was found
is kept in the cache, so that whoever asks again is answered at once.
"""

import hashlib
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog
from celery import current_app
from django.core.cache import cache
from redis.exceptions import RedisError

from inference.models import Upload, UploadPart
from inference.models.upload import LIFETIME
from inference.uploads.errors import DigestAway, DigestPending, TooManyOrders
from inference.uploads.parts import read_parts
from tenants.isolation.scoping import give_connection_back, tenant_scope
from tenants.models import DataKey, Tenant

COMPUTE: Final = "inference.compute_digest"
# As long as the task may take: a place that nobody gave back is free again.
LONGEST_SECONDS: Final = 900
MOST_ORDERS: Final = 3
WAIT_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.05
# What a slow disk gives: when whoever has waited in vain is to ask again.
_BYTES_A_SECOND: Final = 100 * 1024 * 1024
_MOST_RETRY_SECONDS: Final = 30
_KEPT_SECONDS: Final = int(LIFETIME.total_seconds())

log = structlog.get_logger(__name__)


def md5_of(upload: Upload, parts: Sequence[UploadPart]) -> str:
    """Return the MD5 of these parts of an upload in this order, in hexadecimal digits. In no scope.
    Raises `DigestPending` where it takes longer than a few seconds, `TooManyOrders`, and
    `DigestAway` where nobody could be asked."""
    if len(parts) == 1:
        return parts[0].md5
    give_connection_back()
    part_ids = [part.id for part in parts]
    found_at = _place_of_md5(upload.id, part_ids)
    try:
        found: str | None = cache.get(found_at)
        if found is None:
            _have_it_computed(upload, part_ids)
            found = _wait_for(found_at)
    except RedisError as error:
        raise DigestAway from error
    if found is None:
        raise _pending(upload)
    return found


def compute_md5(tenant_id: uuid.UUID, upload_id: uuid.UUID, part_ids: Sequence[uuid.UUID]) -> None:
    """Compute what `md5_of` waits for; in no scope. Raises the store's errors, after which it may
    be asked for again."""
    try:
        with tenant_scope(tenant_id):
            found = UploadPart.objects.filter(upload_id=upload_id).in_bulk(list(part_ids))
            key = DataKey.objects.key_of(Tenant.objects.get(pk=tenant_id))
        if len(found) < len(part_ids):
            return  # the upload has ended meanwhile
        give_connection_back()
        digest = hashlib.md5(usedforsecurity=False)
        for chunk in read_parts([found[each] for each in part_ids], key):
            digest.update(chunk)
        cache.set(_place_of_md5(upload_id, part_ids), digest.hexdigest(), timeout=_KEPT_SECONDS)
    except BaseException:
        _count_order(upload_id, -1)
        raise
    finally:
        cache.delete(_place_of_tenant(tenant_id))


def _have_it_computed(upload: Upload, part_ids: Sequence[uuid.UUID]) -> None:
    place = _place_of_tenant(upload.tenant_id)
    if not cache.add(place, str(upload.id), timeout=LONGEST_SECONDS):
        raise _pending(upload)
    try:
        if _count_order(upload.id, 1) > MOST_ORDERS:
            raise TooManyOrders(
                f"The MD5 of {MOST_ORDERS} orders of this upload's parts was computed, which is "
                "the most there may be. Complete it without md5, or begin another upload.",
                param="md5",
            )
        _send([str(upload.tenant_id), str(upload.id), [str(each) for each in part_ids]])
    except BaseException:
        with suppress(RedisError):
            cache.delete(place)
            _count_order(upload.id, -1)
        raise


def _send(arguments: Sequence[str | list[str]]) -> None:
    try:
        current_app.send_task(COMPUTE, args=arguments)
    except Exception as error:
        log.warning("digest_not_asked_for", reason=repr(error))
        raise DigestAway from error


def _wait_for(found_at: str) -> str | None:
    until = time.monotonic() + WAIT_SECONDS
    found: str | None = None
    while found is None and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        found = cache.get(found_at)
    return found


def _pending(upload: Upload) -> DigestPending:
    seconds = min(_MOST_RETRY_SECONDS, 1 + upload.size_bytes // _BYTES_A_SECOND)
    return DigestPending(
        f"The MD5 of {upload.size_bytes} bytes is not computed yet, or that of another upload of "
        f"yours is: complete it again in {seconds} s.",
        retry_after_seconds=seconds,
    )


def _count_order(upload_id: uuid.UUID, change: int) -> int:
    place = f"upload-orders:{upload_id}"
    # It outlives the upload, whose calls end with it.
    cache.add(place, 0, timeout=2 * _KEPT_SECONDS)
    return int(cache.incr(place, change))


def _place_of_tenant(tenant_id: uuid.UUID) -> str:
    """Return the key in the cache that is there while one is computed for a tenant."""
    return f"upload-digest:{tenant_id}"


def _place_of_md5(upload_id: uuid.UUID, part_ids: Sequence[uuid.UUID]) -> str:
    order = hashlib.sha256(b"".join(each.bytes for each in part_ids)).hexdigest()
    return f"upload-md5:{upload_id}:{order}"
