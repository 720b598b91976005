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
def operators(request: pytest.FixtureRequest) -> None:
    """Records are made by operators, in a test that commits as in one that does not."""
    marker = request.node.get_closest_marker("django_db")
    commits = marker is not None and marker.kwargs.get("transaction")
    request.getfixturevalue("operators_session" if commits else "operators_eye")


@pytest.fixture
def acme(operators: None) -> Project:
    return make_project("Acme", "premium")


@pytest.fixture
def globex(operators: None) -> Project:
    return make_project("Globex", "standard")


def make_project(tenant: str, tier: str) -> Project:
    ensure_default_tiers()
    record = Tenant.objects.create(name=tenant, tier=Tier.objects.get(name=tier))
    return Project.objects.create(tenant=record, name="default")
