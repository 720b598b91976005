"""Dispatch as a gateway has it, and the workers' side of it."""

import pytest
from redis.asyncio import Redis

from inference.dispatch.queue import Dispatch
from tests.support.dispatch.bare_calls import Workers


@pytest.fixture
def dispatch(dispatch_redis: Redis) -> Dispatch:
    return Dispatch(dispatch_redis)


@pytest.fixture
def workers(dispatch_redis: Redis) -> Workers:
    return Workers(dispatch_redis)
