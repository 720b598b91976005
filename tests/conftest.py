"""Fixtures for every test. The servers behind them are in `tests/servers.py`."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from inference.redis_functions import LIBRARIES, library_text
from tests.servers import TestServers, servers


@pytest.fixture(scope="session")
def test_servers() -> TestServers:
    """This run's PostgreSQL (not started until the database is asked for) and Redis servers."""
    return servers()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(test_servers: TestServers) -> None:
    """pytest-django's hook before it makes the test database: the moment to start PostgreSQL."""
    test_servers.start_postgres()


@pytest.fixture
def dispatch_redis_url(test_servers: TestServers) -> str:
    return test_servers.dispatch_redis.url


@pytest.fixture
def redis_url(test_servers: TestServers) -> str:
    return test_servers.redis.url


@pytest.fixture
async def dispatch_redis(dispatch_redis_url: str) -> AsyncIterator[Redis]:
    """A client of the dispatch Redis, emptied, with our functions loaded."""
    client = Redis.from_url(dispatch_redis_url, socket_timeout=None)
    await client.flushall()
    for files in LIBRARIES:
        await client.function_load(library_text(files), replace=True)
    yield client
    await client.aclose()
