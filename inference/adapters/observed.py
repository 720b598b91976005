"""What workers say of versions, put on record: what each does to answers, and that one has it.

A worker is believed of what its own pool serves, and of nothing else.
"""

import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import structlog
from django.db.models import QuerySet
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterEffect, AdapterLevel
from inference.adapters.events import tell_live, tell_refused
from inference.adapters.lifecycle import lock_adapter, lock_version, take_from_traffic
from inference.adapters.loads import note_loads
from inference.adapters.prefetching import prefetch
from inference.adapters.sources import publish_after_commit
from inference.adapters.validation.verdicts import WarningCode
from inference.adapters.versions import NOT_FINITE, NOT_FINITE_MESSAGE
from inference.adapters.worker_counts import may_be_held
from inference.models.adapter import (
    HELD_STATES,
    AdapterState,
    AdapterVersion,
    VersionEffect,
)
from inference.models.catalog import Pool
from inference.pools import alone
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.isolation.scoping import operator_scope

log = structlog.get_logger(__name__)

# Of one pool, in one look; the rest waits for the next.
MOST_EFFECTS: Final = 1_000
_KEYS_AT_ONCE: Final = 1_000
# What no worker would get in so long has no room there, and is tried out by its first request.
_PREFETCHED_FOR: Final = timedelta(hours=1)
_EFFECTS: Final = {
    AdapterEffect.CHANGES: VersionEffect.CHANGES,
    AdapterEffect.NONE: VersionEffect.NONE,
    AdapterEffect.NOT_FINITE: VersionEffect.NOT_FINITE,
}


def note_what_workers_say(redis: Redis, now: datetime | None = None) -> int:
    """Put on record what is new, each version in a transaction of its own, and have what nobody has
    tried out yet tried; return how many versions were noted. In no scope; bears repetition."""
    now = now or datetime.now(UTC)
    with operator_scope("pools of adapters"):
        pools = list(Pool.objects.values_list("name", flat=True))
    noted = 0
    for pool in pools:
        with alone(pool):
            noted += _note_effects(redis, pool)
            note_loads(redis, pool, now)
            if redis.zcard(keys.pool_slots(pool)):  # else nobody is there to have one
                noted += _note_live(redis, pool, now)
                _prefetch_one(redis, pool, now)
    return noted


def note_effect(version_id: uuid.UUID, effect: VersionEffect) -> bool:
    """Put on record what a version does, the first time; return whether it was that. One without
    effect gets a warning; one that can answer nobody is refused, and out of its adapter's traffic.
    Within an operator's scope."""
    # The adapter first, as everybody locks them.
    adapter = lock_adapter(AdapterVersion.objects.only("adapter_id").get(pk=version_id).adapter_id)
    version = lock_version(version_id)
    if not may_be_held(version) or not version.needs_probe:
        return False
    version.effect = effect
    if effect == VersionEffect.NONE and WarningCode.NO_EFFECT not in version.warnings:
        version.warnings = [*version.warnings, WarningCode.NO_EFFECT]
    if effect != VersionEffect.NOT_FINITE or not version.is_ready:
        version.save(update_fields=["effect", "warnings"])
        publish_after_commit(version)
        return True
    version.adapter = take_from_traffic(adapter, version.number)
    version.state, version.path = AdapterState.REFUSED, ""
    version.refusal_code, version.refusal = NOT_FINITE, NOT_FINITE_MESSAGE
    with audited_as(Verb.REFUSED):
        version.save(update_fields=["effect", "state", "path", "refusal_code", "refusal"])
    tell_refused(version)
    return True


def note_live(version_id: uuid.UUID, now: datetime | None = None) -> bool:
    """Put on record that a worker has a version in its engine, the first time; return whether it
    was that. Within an operator's scope."""
    version = lock_version(version_id)
    if not version.is_ready or version.live_at is not None:
        return False
    version.live_at = now or datetime.now(UTC)
    version.save(update_fields=["live_at"])
    tell_live(version)
    return True


def _note_effects(redis: Redis, pool: str) -> int:
    """Note what workers have found, and forget what they said once that is on record."""
    key = keys.pool_adapter_effects(pool)
    said = _said(redis, pool)
    effects = {
        name.decode(errors="replace"): each for name, each in said.items() if each is not None
    }
    with operator_scope("effects of adapters"):
        rows = _of_pool(pool).filter(
            opaque_name__in=list(effects),
            effect=VersionEffect.UNKNOWN,
            state__in=HELD_STATES,
        )
        found = list(rows.values_list("pk", "opaque_name"))
    noted = 0
    for version_id, name in found:
        with operator_scope("effect of an adapter"):
            noted += note_effect(version_id, effects[name])
        log.info("adapter_effect", version=str(version_id), effect=effects[name].value)
    if said:
        redis.hdel(key, *said)
    return noted


def _said(redis: Redis, pool: str) -> dict[bytes, VersionEffect | None]:
    """Return what a pool's workers have said of adapters; None for what means nothing."""
    said: dict[bytes, VersionEffect | None] = {}
    for field, value in redis.hscan_iter(keys.pool_adapter_effects(pool), count=MOST_EFFECTS):
        if len(said) >= MOST_EFFECTS:
            break
        name = cast(bytes, field)
        try:
            said[name] = _EFFECTS[AdapterEffect(int(cast(bytes, value)))]
        except ValueError:
            log.warning("adapter_effect_unreadable", pool=pool)
            said[name] = None
    return said


def _note_live(redis: Redis, pool: str, now: datetime) -> int:
    with operator_scope("adapters on workers"):
        rows = _of_pool(pool).filter(state=AdapterState.READY, live_at=None, tenant__closed_at=None)
        waiting = list(rows.values_list("pk", "opaque_name"))
    noted = 0
    for start in range(0, len(waiting), _KEYS_AT_ONCE):
        some = waiting[start : start + _KEYS_AT_ONCE]
        held = _held(redis, pool, [name for _, name in some], AdapterLevel.MEMORY)
        for version_id, name in some:
            if name in held:
                with operator_scope("an adapter on a worker"):
                    noted += note_live(version_id, now)
    return noted


def _held(redis: Redis, pool: str, names: Sequence[str], level: int) -> set[str]:
    """Return those that a worker has so near, or nearer; at level 0 those too that one gets."""
    with redis.pipeline(transaction=False) as pipeline:
        for name in names:
            key = keys.pool_adapter_workers(pool, name)
            pipeline.zcount(key, int(level), "+inf")
        counts = pipeline.execute()
    return {name for name, count in zip(names, counts, strict=True) if count}


def _prefetch_one(redis: Redis, pool: str, now: datetime) -> None:
    """Have one of the new versions tried out that no worker has, or gets."""
    with operator_scope("adapters that nobody has tried out"):
        rows = _of_pool(pool).filter(
            state=AdapterState.READY,
            effect=VersionEffect.UNKNOWN,
            ready_at__gt=now - _PREFETCHED_FOR,
            tenant__closed_at=None,
        )
        names = list(rows.values_list("opaque_name", flat=True)[:_KEYS_AT_ONCE])
    if left := sorted(set(names) - _held(redis, pool, names, 0)):
        prefetch(redis, pool, random.choice(left))


def _of_pool(pool: str) -> QuerySet[AdapterVersion]:
    return AdapterVersion.objects.filter(adapter__model__pool=pool)
