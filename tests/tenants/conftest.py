"""The cast: Alice's Acme and Bob's Globex. The snapshot's Redis is real and starts empty."""

from collections.abc import Iterator

import pytest
from redis import Redis

from tenants.default_tiers import ensure_default_tiers
from tenants.models import Project, Tenant, Tier


@pytest.fixture
def policy_redis(dispatch_redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        yield redis


@pytest.fixture
def acme(db: None) -> Project:
    return make_project("Acme", "premium")


@pytest.fixture
def globex(db: None) -> Project:
    return make_project("Globex", "standard")


def make_project(tenant: str, tier: str) -> Project:
    ensure_default_tiers()
    record = Tenant.objects.create(name=tenant, tier=Tier.objects.get(name=tier))
    return Project.objects.create(tenant=record, name="default")
