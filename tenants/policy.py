"""The policy writer: PostgreSQL's keys, tiers and models as a snapshot in Redis.

Gateways check keys against the snapshot alone, so they work while PostgreSQL is down. Every change
bumps `PolicyVersion` in its own transaction; the snapshot is written after the commit, and by the
reconciler where a crash came between. The whole of it is written in one MULTI: readers see the
old or the new one.
"""

from collections.abc import Callable, Iterable
from functools import cache

import structlog
from django.conf import settings
from django.db import transaction
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.policy import ModelPolicy
from tenants.models import ApiKey, PolicyVersion, Tenant
from tenants.scoping import operator_scope

log = structlog.get_logger(__name__)

# What redis-py takes for fields and values.
_Text = bytes | bytearray | memoryview | str | int | float

ModelSource = Callable[[], Iterable[ModelPolicy]]
_model_sources: list[ModelSource] = []


def register_model_source(source: ModelSource) -> None:
    """Say where served models come from. The catalogue stands on a floor above this one, so it
    registers itself when its app is ready."""
    if source not in _model_sources:
        _model_sources.append(source)


def publish_after_commit() -> None:
    """Write the snapshot once the running transaction has committed."""
    transaction.on_commit(_publish)


def rebuild_policy() -> str:
    """Write the whole snapshot whatever Redis holds; returns its version."""
    with operator_scope("policy snapshot"):
        version = PolicyVersion.locked()
        _write(version)
    return str(version)


def reconcile_policy() -> bool:
    """Write the snapshot if Redis has another version, or none; returns whether it had to."""
    if _written_version() == _current_version():
        return False
    with operator_scope("policy snapshot"):
        version = PolicyVersion.locked()
        if _written_version() == str(version):
            return False  # another writer was quicker
        _write(version)
    return True


def _publish() -> None:
    try:
        reconcile_policy()
    except RedisError as error:
        # The change is committed; the reconciler brings it to Redis once that answers again.
        log.warning("policy_not_published", error=str(error))


def _write(version: PolicyVersion) -> None:
    """The version row is locked, so what is read here is one state, and the newest."""
    api_keys: dict[_Text, _Text] = {
        key.public_id: encode(key.to_policy())
        for key in ApiKey.objects.with_policy_parts().order_by().iterator(chunk_size=5000)
    }
    tenants: dict[_Text, _Text] = {
        str(tenant.id): encode(tenant.to_policy())
        for tenant in Tenant.objects.select_related("tier").prefetch_related("quotas").order_by()
    }
    models: dict[_Text, _Text] = {
        model.name: encode(model) for source in _model_sources for model in source()
    }
    with _redis().pipeline(transaction=True) as pipeline:
        pipeline.delete(keys.policy_api_keys(), keys.policy_tenants(), keys.policy_models())
        if api_keys:
            pipeline.hset(keys.policy_api_keys(), mapping=api_keys)
        if tenants:
            pipeline.hset(keys.policy_tenants(), mapping=tenants)
        if models:
            pipeline.hset(keys.policy_models(), mapping=models)
        pipeline.set(keys.policy_version(), str(version))
        pipeline.execute()
    log.info("policy_written", version=str(version), api_keys=len(api_keys), models=len(models))


def _current_version() -> str | None:
    version = PolicyVersion.objects.first()
    return None if version is None else str(version)


def _written_version() -> str | None:
    written = _redis().get(keys.policy_version())
    return None if written is None else written.decode() if isinstance(written, bytes) else written


@cache
def _redis() -> Redis:
    # One try: whoever saves a change in the admin must not wait out a Redis that is down.
    return Redis.from_url(
        settings.PENSTOCK_DISPATCH_REDIS_URL,
        socket_timeout=5,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 1),
    )
