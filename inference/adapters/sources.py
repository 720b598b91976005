"""Where workers find adapters: a row for each version that may be needed, in each pool that serves
its model, with an address that expires and is signed anew before."""

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, cast

import structlog
from django.db import DatabaseError, transaction
from django.db.models import Q
from redis import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterSource
from gpu_workers.protocol.sealed import HEADER_BYTES, SealBroken, salt_of, stream_key
from inference.adapters.lifecycle import drained_at
from inference.adapters.pins import pin_problems, write_pins
from inference.adapters.prefetching import prefetch
from inference.blobs.errors import NoSuchBlob
from inference.blobs.opening import blob_store
from inference.errors import Unavailable
from inference.models.adapter import AdapterState, AdapterVersion
from inference.models.catalog import Pool
from inference.usage.collector import dispatch_redis
from tenants.encryption import SecretLost
from tenants.isolation.scoping import operator_scope
from tenants.models import DataKey, Tenant

log = structlog.get_logger(__name__)

LIFETIME: Final = timedelta(hours=1)
# With less than this left it is signed anew: workers never see one that is about to expire.
_RENEWED_BEFORE: Final = timedelta(minutes=30)
_CHUNK: Final = 2000
_WRITTEN_AT_ONCE: Final = 200

# What redis-py takes for fields and values.
_Text = bytes | bytearray | memoryview | str | int | float
_Mapping = dict[_Text, _Text]

# Return an address of a blob for so many seconds, and the key that opens a version's blob alone.
# The latter raises `LookupError` where the tenant's key or the blob is gone.
Sign = Callable[[str, int], str]
KeyOf = Callable[[AdapterVersion], bytes]


def publish_after_commit(version: AdapterVersion) -> None:
    """Tell workers of a version as soon as it is on record. Where that fails the next sync does
    it."""
    transaction.on_commit(partial(_publish, version.pk))


def blob_key_of(version: AdapterVersion) -> bytes:
    """Return the key that opens what is stored of a version, and nothing else: what workers get
    opens no other blob of the tenant. Within an `operator_scope`. Raises `LookupError` where that
    is gone."""
    try:
        key = DataKey.objects.key_of(version.adapter.tenant)
        if version.salt is None:
            _note_salt(version)
    except (Tenant.DoesNotExist, SecretLost, NoSuchBlob, SealBroken) as error:
        raise LookupError(str(error)) from error
    return stream_key(key, bytes(version.salt or b""))


def _note_salt(version: AdapterVersion) -> None:
    """Read the salt of a version from before it was kept, once."""
    begun = b""
    for chunk in blob_store().get(version.path):
        begun += chunk
        if len(begun) >= HEADER_BYTES:
            break
    version.salt = salt_of(begun)
    AdapterVersion.objects.filter(pk=version.pk, salt=None).update(salt=version.salt)


def sync_sources(redis: Redis, *, sign: Sign, key_of: KeyOf, now: datetime | None = None) -> int:
    """Write the rows that are missing, or expire soon, remove those of versions that nothing needs,
    and say what is pinned; return how many were written. Runs in an `operator_scope`, and bears
    repetition."""
    now = now or datetime.now(UTC)
    pools = list(Pool.objects.values_list("name", flat=True))
    # Before the records are read: what becomes ready after that is not taken for gone.
    written = {pool: _rows(redis, pool) for pool in pools}
    wanted: dict[str, dict[str, AdapterVersion]] = {pool: {} for pool in pools}
    for version in needed_versions(now):
        pool = version.adapter.model.pool_id
        wanted.setdefault(pool, {})[version.opaque_name] = version
    made: dict[str, bytes] = {}
    count = 0
    for pool, versions in wanted.items():
        rows = written.get(pool, {})
        new: dict[str, bytes] = {}
        for name, version in versions.items():
            if not _is_good(rows.get(name), version, now):
                if name not in made:
                    source = _source(version, sign=sign, key_of=key_of, now=now)
                    if source is None:
                        continue
                    made[name] = codec.encode(source)
                new[name] = made[name]
        gone = [name for name in rows if name not in versions]
        _write(redis, pool, new, gone)
        count += len(new)
    write_pins(redis)
    return count


def _write(redis: Redis, pool: str, new: dict[str, bytes], gone: list[str]) -> None:
    """Write rows and remove others, a few at a time: gateways and workers wait for each command."""
    key, rows = keys.pool_adapter_sources(pool), list(new.items())
    with redis.pipeline(transaction=False) as pipeline:
        for at in range(0, len(rows), _WRITTEN_AT_ONCE):
            pipeline.hset(key, mapping=cast(_Mapping, dict(rows[at : at + _WRITTEN_AT_ONCE])))
        for at in range(0, len(gone), _WRITTEN_AT_ONCE):
            pipeline.hdel(key, *gone[at : at + _WRITTEN_AT_ONCE])
        pipeline.execute()


def restore_sources(redis: Redis) -> None:
    """Fill a Redis that has lost everything, before requests are let in. A store that is away keeps
    nobody out: the next sync does it."""
    try:
        sync_sources(redis, sign=blob_store().signed_url, key_of=blob_key_of)
    except Unavailable as error:
        log.warning("adapter_addresses_not_restored", reason=error.message)


def needed_versions(now: datetime) -> Iterator[AdapterVersion]:
    """Yield the versions that a worker may be asked for: those that are ready, and those that were
    while requests that were admitted may wait."""
    stored = AdapterVersion.objects.filter(
        Q(state=AdapterState.READY) | Q(state=AdapterState.ARCHIVED), tenant__closed_at=None
    ).exclude(path="")
    rows = stored.select_related("adapter__tenant__tier", "adapter__model")
    for version in rows.order_by("pk").iterator(chunk_size=_CHUNK):
        drained = drained_at(version)
        if drained is None or now < drained:
            yield version


def address_problems() -> Iterator[str]:
    """Find, for fsck, what `source_problems` and `pin_problems` do, in the deployment's Redis."""
    with dispatch_redis() as redis:
        yield from source_problems(redis)
        yield from pin_problems(redis)


def source_problems(redis: Redis, now: datetime | None = None) -> Iterator[str]:
    """Find, for fsck, versions that workers cannot find, and rows that nothing needs."""
    now = now or datetime.now(UTC)
    expected: dict[str, dict[str, AdapterVersion]] = {
        pool: {} for pool in Pool.objects.values_list("name", flat=True)
    }
    for version in needed_versions(now):
        expected[version.adapter.model.pool_id][version.opaque_name] = version
    for pool, versions in sorted(expected.items()):
        rows = _rows(redis, pool)
        for name, version in versions.items():
            row = rows.pop(name, None)
            if version.is_ready and (row is None or row.expires_at_ms < now.timestamp() * 1000):
                yield f"Adapter {version}: workers of {pool} have no address; see that beat runs."
        for name in rows:
            yield f"Pool {pool}: the address of adapter {name[:12]}… is that of no version."


def _publish(version_id: uuid.UUID) -> None:
    now = datetime.now(UTC)
    try:
        with dispatch_redis() as redis, operator_scope("address of an adapter"):
            rows = AdapterVersion.objects.select_related("adapter__tenant", "adapter__model")
            version = rows.get(pk=version_id)
            source = _source(version, sign=blob_store().signed_url, key_of=blob_key_of, now=now)
            if source is not None:
                pool = version.adapter.model.pool_id
                row = codec.encode(source)
                redis.hset(keys.pool_adapter_sources(pool), version.opaque_name, row)
                if version.needs_probe:
                    prefetch(redis, pool, version.opaque_name)
    except (RedisError, DatabaseError, Unavailable) as error:
        log.warning("adapter_address_not_published", reason=str(error))


def _rows(redis: Redis, pool: str) -> dict[str, AdapterSource | None]:
    """Return what a pool's workers are told now; None for a row that cannot be read."""
    found: dict[str, AdapterSource | None] = {}
    for field, row in redis.hscan_iter(keys.pool_adapter_sources(pool), count=_CHUNK):
        name = cast(bytes, field).decode()
        try:
            found[name] = codec.decode_adapter_source(cast(bytes, row))
        except codec.WireFormatError:
            found[name] = None
    return found


def _is_good(row: AdapterSource | None, version: AdapterVersion, now: datetime) -> bool:
    return (
        row is not None
        and row.expires_at_ms >= (now + _RENEWED_BEFORE).timestamp() * 1000
        and row.size_bytes == version.stored_bytes
        and row.sha256.hex() == version.digest
        and row.needs_probe == version.needs_probe
    )


def _source(
    version: AdapterVersion, *, sign: Sign, key_of: KeyOf, now: datetime
) -> AdapterSource | None:
    try:
        key = key_of(version)
    except LookupError as error:
        log.error("adapter_without_key", tenant=str(version.tenant_id), reason=str(error))
        return None
    return AdapterSource(
        adapter=version.opaque_name,
        url=sign(version.path, int(LIFETIME.total_seconds())),
        size_bytes=version.stored_bytes,
        sha256=bytes.fromhex(version.digest),
        key=key,
        expires_at_ms=int((now + LIFETIME).timestamp() * 1000),
        needs_probe=version.needs_probe,
    )
