"""What a role can read of the dispatch Redis opens the blobs that it is told of, one by one: never
another, and never all of a tenant's."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from pytest_django import Settings
from redis import Redis
from redis.exceptions import NoPermissionError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.sealed import (
    KEY_BYTES,
    SealBroken,
    new_salt,
    open_sealed,
    open_stream,
    seal,
)
from inference.adapters.sources import blob_key_of, sync_sources
from inference.blobs.opening import blob_store
from inference.models import AdapterVersion
from tenants.models import DataKey, Project, Tenant
from tests.support.adapters.records import a_ready_version, an_adapter
from tests.support.projects import make_project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
POOL = "pool-a"
PLAIN = b"weights"
READS: dict[bytes, tuple[Any, ...]] = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"list": ("LRANGE", 0, -1),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1),
    b"stream": ("XRANGE", "-", "+"),
}


@pytest.fixture
def acme(settings: Settings, tmp_path: Path) -> Project:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{tmp_path / 'blobs'}"
    return make_project("Acme", "premium")


@pytest.fixture
def versions(acme: Project, redis: Redis) -> list[AdapterVersion]:
    """Two of Acme and one of Globex, as workers find them."""
    redis.hset(keys.policy_api_keys(), "a key", bytes(64))  # something that gateways may read
    globex = make_project("Globex", "standard").tenant
    stored = [
        a_stored_version(acme.tenant, "support"),
        a_stored_version(acme.tenant, "law"),
        a_stored_version(globex, "support"),
    ]
    sync_sources(redis, sign=blob_store().signed_url, key_of=blob_key_of)
    return stored


def a_stored_version(tenant: Tenant, slug: str, *, keeps_salt: bool = True) -> AdapterVersion:
    key, salt, path = DataKey.objects.key_of(tenant), new_salt(), f"adapters/{tenant.slug}-{slug}"
    size = blob_store().put(path, seal([PLAIN], key, salt=salt))
    return a_ready_version(
        an_adapter(tenant, slug),
        path=path,
        stored_bytes=size,
        salt=salt if keeps_salt else None,
    )


@pytest.mark.parametrize("role", ["worker", "gateway"])
def test_no_role_reads_a_key_that_opens_a_second_blob(
    role: str,
    versions: list[AdapterVersion],
    redis: Redis,
    worker_redis_url: Callable[[str], str],
    gateway_redis_url: str,
) -> None:
    blobs = {version.path: b"".join(blob_store().get(version.path)) for version in versions}
    url = worker_redis_url(POOL) if role == "worker" else gateway_redis_url
    with Redis.from_url(url) as reader:
        words = {word for data in readable(reader, redis) for word in words_in(data)}
    opened = {word: [path for path, blob in blobs.items() if opens(blob, word)] for word in words}
    assert max(map(len, opened.values())) <= 1
    told = {path for paths in opened.values() for path in paths}
    assert told == (set(blobs) if role == "worker" else set())
    assert not [word for word in words for blob in blobs.values() if opens_as_tenants(blob, word)]


def test_a_version_from_before_salts_were_kept_is_read_once(acme: Project, redis: Redis) -> None:
    version = a_stored_version(acme.tenant, "old", keeps_salt=False)
    sync_sources(redis, sign=blob_store().signed_url, key_of=blob_key_of)
    row: Any = redis.hget(keys.pool_adapter_sources(POOL), version.opaque_name)
    key = codec.decode_adapter_source(row).key
    assert b"".join(open_stream(blob_store().get(version.path), key)) == PLAIN
    version.refresh_from_db()
    assert version.salt is not None
    assert key == blob_key_of(version)


def test_a_blob_that_is_gone_keeps_no_other_from_workers(acme: Project, redis: Redis) -> None:
    lost = a_stored_version(acme.tenant, "lost", keeps_salt=False)
    there = a_stored_version(acme.tenant, "there")
    blob_store().delete(lost.path)
    sync_sources(redis, sign=blob_store().signed_url, key_of=blob_key_of)
    assert redis.hkeys(keys.pool_adapter_sources(POOL)) == [there.opaque_name.encode()]


def readable(reader: Redis, owner: Redis) -> Iterator[bytes]:
    """Everything in Redis that the reader's user may read."""
    for key in owner.scan_iter():
        command, *arguments = READS[owner.type(key)]  # type: ignore[index]
        try:
            found: Any = reader.execute_command(command, key, *arguments)  # type: ignore[no-untyped-call]
            yield from flat(found)
        except NoPermissionError:
            continue


def flat(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        yield from flat(list(value.items()))
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from flat(each)


def words_in(data: bytes) -> Iterator[bytes]:
    """Every run of bytes that could be a key."""
    return (data[at : at + KEY_BYTES] for at in range(len(data) - KEY_BYTES + 1))


def opens(blob: bytes, key: bytes) -> bool:
    try:
        return b"".join(open_stream([blob], key)) == PLAIN
    except (SealBroken, InvalidTag):
        return False


def opens_as_tenants(blob: bytes, key: bytes) -> bool:
    try:
        return b"".join(open_sealed([blob], key)) == PLAIN
    except (SealBroken, InvalidTag):
        return False
