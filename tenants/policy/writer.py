"""The policy writer: PostgreSQL's keys, tiers and models as a snapshot in Redis.

Gateways check keys against the snapshot alone, so they work while PostgreSQL is down. A change is
noted in its own transaction (`PolicyChange`); after the commit the rows that it affects and the new
version are written in one MULTI, and by the reconciler where a crash came between. A writer
watches the version that it started from: whoever was overtaken starts again, so an old row never
follows a newer one. A Redis that has no version of ours gets the whole snapshot, built beside
the old one and put in its place at once.

With each version goes what it changed, so that gateways need not forget all that they know; a whole
snapshot, or very many rows, say nothing of the kind.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Final, cast

import structlog
from django.db import DatabaseError, connection, transaction
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError, WatchError

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.policy import PolicyDelta
from tenants.isolation.scoping import operator_scope
from tenants.models import PolicyChange, PolicyPart, PolicyVersion
from tenants.policy.rows import (
    AffectedRows,
    PolicyRow,
    adapter_rows,
    affected_rows,
    api_key_rows,
    model_rows,
    pool_names,
    tenant_rows,
)
from tenants.policy_redis import policy_redis

log = structlog.get_logger(__name__)

# Fills a Redis that has lost everything, in an `operator_scope`; must bear repetition.
Restorer = Callable[[Redis], object]
# Does what restorers build upon, outside of any transaction; must bear repetition. Raises
# `RestoreNotReady` while others have still to resend what Redis has lost.
PreRestoreHook = Callable[[Redis], object]

# What redis-py takes for fields and values.
_Text = bytes | bytearray | memoryview | str | int | float
_Mapping = dict[_Text, _Text]

# A snapshot that is further behind is written whole.
CHANGES_KEPT: Final = 10_000
# Of what versions changed; a gateway that is further behind reads all of it anew.
DELTAS_KEPT: Final = 256
_MOST_NAMED: Final = 500
_ATTEMPTS: Final = 20
_CHUNK: Final = 1000
# Where a whole snapshot is built, by what it takes the place of.
_NEXT: Final = {
    keys.policy_api_keys(): keys.policy_next("api-keys"),
    keys.policy_tenants(): keys.policy_next("tenants"),
    keys.policy_adapters(): keys.policy_next("adapters"),
}


PRE_RESTORE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1

_restorers: list[Restorer] = []
_pre_restore_hooks: list[PreRestoreHook] = []


class RestoreNotReady(Exception):
    """The snapshot has to wait: whoever it lets in would be let in too early."""


def register_restorer(restore: Restorer) -> None:
    """Say what has to be in Redis before a snapshot lets callers in again. Usage stands on a floor
    above this one, so it registers itself when its app is ready."""
    if restore not in _restorers:
        _restorers.append(restore)


def register_pre_restore_hook(hook: PreRestoreHook) -> None:
    """Register what has to be done before the restorers are called."""
    if hook not in _pre_restore_hooks:
        _pre_restore_hooks.append(hook)


def publish_after_commit() -> None:
    """Bring the snapshot up to date once the running transaction has committed."""
    if not any(hook[1] is _publish for hook in connection.run_on_commit):
        transaction.on_commit(_publish)


def rebuild_policy() -> str:
    """Write the whole snapshot whatever Redis holds; returns its version."""
    _wait_for_pre_restore_hooks()
    with operator_scope("policy snapshot"), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [REWRITE_LOCK])
        return _write_whole()


def reconcile_policy() -> bool:
    """Write what Redis lacks, if anything; returns whether it had to."""
    _wait_for_pre_restore_hooks()
    with operator_scope("policy snapshot"):
        return _catch_up()


def delete_old_changes() -> int:
    """Delete the notes of changes that every snapshot in use has long had; returns how many."""
    with operator_scope("policy snapshot"):
        oldest = PolicyVersion.current().version - CHANGES_KEPT
        return PolicyChange.objects.filter(version__lt=oldest).delete()[0]


def written_version() -> str | None:
    """Return the version of the snapshot in Redis, None where there is none."""
    return _text(policy_redis().get(keys.policy_version()))


def _wait_for_pre_restore_hooks() -> None:
    """Wait until a Redis that has lost everything was resent what was not in PostgreSQL yet, from
    which the budgets are rebuilt. Raises `RestoreNotReady` if that takes too long."""
    until = time.monotonic() + PRE_RESTORE_SECONDS
    while written_version() is None:
        try:
            _run_pre_restore_hooks()
        except RestoreNotReady:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _run_pre_restore_hooks() -> None:
    # What was sent again lies in the streams of pools, which are found by these names.
    with operator_scope("policy snapshot"):
        pools = pool_names()
    if pools:
        policy_redis().sadd(keys.known_pools(), *pools)
    for hook in _pre_restore_hooks:
        hook(policy_redis())


def _publish() -> None:
    try:
        if written_version() is None:
            _run_pre_restore_hooks()
        with operator_scope("policy snapshot"):
            _catch_up()
    except RestoreNotReady:
        # Nobody who saves a change waits for that; the reconciler does.
        log.info("policy_restore_not_ready")
    except (RedisError, DatabaseError) as error:
        # The change is committed; the reconciler brings it to Redis once both answer again.
        log.warning("policy_not_published", error=str(error))


def _catch_up() -> bool:
    for _ in range(_ATTEMPTS):
        # In this order: what is read of PostgreSQL is at least as new as the version we name.
        written = written_version()
        version = str(PolicyVersion.current())
        if written == version:
            return False
        changes = PolicyChange.objects.after(written)
        if changes is None or _is_everything(changes):
            return _write_whole_unless_another_does()
        if _write(affected_rows(changes), seen=written, version=str(changes[-1])):
            log.info("policy_written", version=str(changes[-1]), changes=len(changes))
            return True
    log.warning("policy_writer_overtaken", attempts=_ATTEMPTS)
    return False


# The whole snapshot ------------------------------------------------------------------------------

# PostgreSQL's advisory lock: one process at a time rewrites the snapshot.
REWRITE_LOCK: Final = 0x70656E73


def _write_whole_unless_another_does() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [REWRITE_LOCK])
        has_turn: bool = cursor.fetchone() == (True,)
    if has_turn:
        _write_whole()
    return has_turn


def _write_whole() -> str:
    """Write the whole snapshot. Only one process is ever here; changes that commit meanwhile are
    written with the rest."""
    while True:
        base = str(PolicyVersion.current())
        counts = [
            _fill(keys.policy_next("api-keys"), api_key_rows()),
            _fill(keys.policy_next("tenants"), tenant_rows()),
            _fill(keys.policy_next("adapters"), adapter_rows()),
        ]
        for _ in range(_ATTEMPTS):
            seen = written_version()
            if seen is None:
                for restore in _restorers:
                    restore(policy_redis())
            version = str(PolicyVersion.current())
            changes = [] if version == base else PolicyChange.objects.after(base)
            if changes is None or _is_everything(changes):
                break
            rows = affected_rows(changes)
            rows = replace(rows, models=dict(model_rows()), pools=pool_names())
            version = str(changes[-1]) if changes else base
            if _write(rows, seen=seen, version=version, instead=_NEXT):
                log.info("policy_rewritten", version=version, api_keys=counts[0])
                return version


def _fill(key: str, rows: Iterable[PolicyRow]) -> int:
    """Write the rows to a hash that nobody reads yet; return how many."""
    count = 0
    redis = policy_redis()
    redis.delete(key)
    for chunk in _chunks(rows):
        redis.hset(key, mapping=chunk)
        count += len(chunk)
    return count


def _chunks(rows: Iterable[PolicyRow]) -> Iterator[_Mapping]:
    remaining = iter(rows)
    while chunk := dict(islice(remaining, _CHUNK)):
        yield cast(_Mapping, chunk)


# One MULTI ---------------------------------------------------------------------------------------


def _write(
    rows: AffectedRows,
    *,
    seen: str | None,
    version: str,
    instead: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Write the rows at once, so that readers see all of it or nothing. Return False, with nothing
    written, where the snapshot is no longer of the version `seen`."""
    with policy_redis().pipeline(transaction=True) as pipeline:
        pipeline.watch(keys.policy_version())  # type: ignore[no-untyped-call]
        if _text(pipeline.get(keys.policy_version())) != seen:
            return False
        filled = [bool(pipeline.exists(built)) for built in instead.values()]
        pipeline.multi()
        for (key, built), is_filled in zip(instead.items(), filled, strict=True):
            if is_filled:
                pipeline.rename(built, key)
            else:
                pipeline.delete(key)
        _set_rows(pipeline, keys.policy_api_keys(), rows.api_keys)
        _set_rows(pipeline, keys.policy_tenants(), rows.tenants)
        _set_rows(pipeline, keys.policy_adapters(), rows.adapters)
        if rows.models is not None:
            pipeline.delete(keys.policy_models())
            _set_rows(pipeline, keys.policy_models(), rows.models)
        if rows.pools:
            # None is ever removed: what requests of a former one have used is still collected.
            pipeline.sadd(keys.known_pools(), *rows.pools)
        pipeline.set(keys.policy_version(), version)
        if seen is not None and not instead:
            _add_delta(pipeline, rows, base=seen, version=version)
        try:
            pipeline.execute()
        except WatchError:
            return False
    return True


def _add_delta(pipeline: Pipeline, rows: AffectedRows, *, base: str, version: str) -> None:
    if len(rows.api_keys) + len(rows.tenants) + len(rows.adapters) > _MOST_NAMED:
        return
    delta = PolicyDelta(
        base=base,
        version=version,
        api_keys=sorted(rows.api_keys),
        tenants=sorted(rows.tenants),
        has_models=rows.models is not None,
        adapters=sorted(rows.adapters),
    )
    entry = cast(_Mapping, {stream_fields.POLICY_DELTA_FIELD: encode(delta)})
    pipeline.xadd(keys.policy_deltas(), entry, maxlen=DELTAS_KEPT)


def _set_rows(
    pipeline: Pipeline, key: str, rows: "dict[str, bytes | None] | dict[str, bytes]"
) -> None:
    present = {row_id: row for row_id, row in rows.items() if row is not None}
    gone = rows.keys() - present.keys()
    if present:
        pipeline.hset(key, mapping=cast(_Mapping, present))
    if gone:
        pipeline.hdel(key, *gone)


def _is_everything(changes: Iterable[PolicyChange]) -> bool:
    return any(change.part == PolicyPart.EVERYTHING for change in changes)


def _text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else cast(str | None, value)
