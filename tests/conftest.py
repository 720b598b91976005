"""Fixtures for every test. The servers behind them are in `tests/servers.py`."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from control_plane import redis_acl
from redis.asyncio import Redis

from tests.places import ROOT
from tests.servers import TestServers, servers

LUA_FUNCTIONS = sorted((ROOT / "inference").rglob("*.lua"))


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
    """The dispatch Redis for the test itself, which may do everything there."""
    return test_servers.dispatch_redis.url


@pytest.fixture
def gateway_redis_url(test_servers: TestServers) -> str:
    """The dispatch Redis as a gateway gets it."""
    return test_servers.dispatch_redis.url_of(redis_acl.GATEWAY)


@pytest.fixture
def worker_redis_url(test_servers: TestServers) -> Callable[[str], str]:
    """The dispatch Redis as the workers of a pool get it, by the pool."""
    return test_servers.worker_redis_url


@pytest.fixture
def redis_url(test_servers: TestServers) -> str:
    return test_servers.redis.url


@pytest.fixture
async def dispatch_redis(dispatch_redis_url: str) -> AsyncIterator[Redis]:
    """A client of the dispatch Redis, emptied, with our functions loaded."""
    client = Redis.from_url(dispatch_redis_url, socket_timeout=None)
    await client.flushall()
    await _load_functions(client, LUA_FUNCTIONS)
    yield client
    await client.aclose()


async def _load_functions(client: Redis, files: list[Path]) -> None:
    for file in files:
        await client.function_load(file.read_text(), replace=True)
