"""The cast: Alice's Acme and Bob's Globex. The snapshot's Redis is real and starts empty."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from django.db import connections
from redis import Redis

from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tests.support.projects import make_project

_T = TypeVar("_T")


@pytest.fixture
def policy_redis(dispatch_redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        yield redis
        redis.flushall()


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


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], _T]], _T]]:
    """Runs something in another thread, on a database connection of its own."""
    with ThreadPoolExecutor(1) as pool:

        def run(work: Callable[[], _T]) -> _T:
            def closing() -> _T:
                try:
                    with operator_scope("test, elsewhere"):
                        return work()
                finally:
                    connections.close_all()

            return pool.submit(closing).result(timeout=30)

        yield run
