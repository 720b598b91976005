"""The world of known figures, and who looks at it."""

from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django import DjangoDbBlocker
from redis import Redis

from tests.support.database import shared
from tests.support.figures.pool_costs import costs_of_days
from tests.support.figures.world import World, make_world
from tests.support.servers import TestServers


@pytest.fixture(scope="module")
def _world(
    test_servers: TestServers, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[World]:
    with (
        Redis.from_url(test_servers.dispatch_redis.url) as redis,
        costs_of_days(test_servers.superuser_url),
        shared(lambda: make_world(redis), django_db_blocker) as world,
    ):
        yield world


@pytest.fixture
def world(_world: World, db: None) -> World:
    return _world


@pytest.fixture
def tenant(world: World, client: Client) -> Client:
    """A browser of Acme's admin."""
    client.force_login(world.admin)
    return client


@pytest.fixture
def operator(world: World, client: Client) -> Client:
    client.force_login(world.operator)
    return client
