"""Where workers find adapters: in each pool of their model, signed anew in time, and no longer than
needed."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from redis import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterSource
from inference.adapters import lifecycle
from inference.adapters.sources import LIFETIME, source_problems, sync_sources
from inference.models import AdapterVersion, Pool, ServedModel
from tenants.models import Project
from tenants.offboarding.closing import close_tenant
from tests.support.adapters.records import a_ready_version, an_adapter, an_upload
from tests.support.projects import make_project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
POOL = "pool-a"


class Signatures:
    """Signs as a store does, and keeps count."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, path: str, seconds: int) -> str:
        self.paths.append(path)
        return f"https://store.example/{path}?seconds={seconds}&number={len(self.paths)}"


def key_of(version: AdapterVersion) -> bytes:
    return version.id.bytes * 2


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


@pytest.fixture
def sign() -> Signatures:
    return Signatures()


def sources(redis: Redis, pool: str = POOL) -> dict[str, AdapterSource]:
    rows = cast(dict[bytes, bytes], redis.hgetall(keys.pool_adapter_sources(pool)))
    return {name.decode(): codec.decode_adapter_source(row) for name, row in rows.items()}


def test_what_is_ready_is_found_in_its_models_pool(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    Pool.objects.create(name="pool-b")
    adapter = an_adapter(acme.tenant)
    version = a_ready_version(adapter)
    an_upload(adapter)
    assert sync_sources(redis, sign=sign, key_of=key_of) == 1
    found = sources(redis)[version.opaque_name]
    assert found.adapter == version.opaque_name
    assert found.url.startswith(f"https://store.example/{version.path}?")
    assert (found.size_bytes, found.sha256.hex()) == (version.stored_bytes, version.digest)
    assert found.key == key_of(version)
    assert sources(redis, "pool-b") == {}
    assert list(source_problems(redis)) == []


def test_an_address_is_signed_anew_before_it_expires(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    now = datetime.now(UTC)
    assert sync_sources(redis, sign=sign, key_of=key_of, now=now) == 1
    assert sync_sources(redis, sign=sign, key_of=key_of, now=now + LIFETIME / 4) == 0
    later = now + LIFETIME * 0.6
    assert sync_sources(redis, sign=sign, key_of=key_of, now=later) == 1
    expires = datetime.fromtimestamp(sources(redis)[version.opaque_name].expires_at_ms / 1000, UTC)
    assert expires - later == pytest.approx(LIFETIME, abs=timedelta(seconds=1))


def test_a_row_that_says_something_else_is_mended(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    sync_sources(redis, sign=sign, key_of=key_of)
    redis.hset(keys.pool_adapter_sources(POOL), version.opaque_name, b"junk")
    redis.hset(keys.pool_adapter_sources(POOL), "0" * 64, b"nobody's")
    assert sync_sources(redis, sign=sign, key_of=key_of) == 1
    assert set(sources(redis)) == {version.opaque_name}


def test_what_was_archived_is_found_while_a_request_may_need_it(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    lifecycle.delete_adapter(version.adapter)
    sync_sources(redis, sign=sign, key_of=key_of)
    assert version.opaque_name in sources(redis)
    version.refresh_from_db()
    assert version.delete_at is not None
    sync_sources(redis, sign=sign, key_of=key_of, now=version.delete_at)
    assert sources(redis) == {}


def test_a_closed_tenants_adapters_are_found_by_nobody(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    a_ready_version(an_adapter(acme.tenant))
    sync_sources(redis, sign=sign, key_of=key_of)
    assert sources(redis)
    close_tenant(acme.tenant)
    assert list(source_problems(redis))
    sync_sources(redis, sign=sign, key_of=key_of)
    assert sources(redis) == {}
    assert list(source_problems(redis)) == []


def test_one_tenants_lost_key_keeps_no_other_from_theirs(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    a_ready_version(an_adapter(acme.tenant))
    globex = make_project("Globex", "standard")
    theirs = a_ready_version(an_adapter(globex.tenant))

    def key_or_none(version: AdapterVersion) -> bytes:
        if version.tenant_id == acme.tenant.id:
            raise LookupError
        return key_of(version)

    sync_sources(redis, sign=sign, key_of=key_or_none)
    assert set(sources(redis)) == {theirs.opaque_name}
    assert len(list(source_problems(redis))) == 1


def test_a_model_that_moves_to_another_pool_takes_its_adapters_along(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    sync_sources(redis, sign=sign, key_of=key_of)
    ServedModel.objects.update(pool=Pool.objects.create(name="pool-b"))
    sync_sources(redis, sign=sign, key_of=key_of)
    assert sources(redis) == {}
    assert set(sources(redis, "pool-b")) == {version.opaque_name}


def test_the_same_bytes_twice_are_found_while_either_is_needed(
    redis: Redis, acme: Project, sign: Signatures
) -> None:
    adapter = an_adapter(acme.tenant)
    first = a_ready_version(adapter)
    second = a_ready_version(
        an_adapter(acme.tenant, "other"),
        opaque_name=first.opaque_name,
        digest=first.digest,
        path=first.path,
    )
    lifecycle.delete_adapter(adapter)
    first.refresh_from_db()
    assert first.delete_at is not None
    sync_sources(redis, sign=sign, key_of=key_of, now=first.delete_at)
    assert set(sources(redis)) == {second.opaque_name}
    assert AdapterVersion.objects.exclude(path="").count() == 2
