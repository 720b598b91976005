"""What gateways that died leave in Redis comes to an end, though no worker may expire it."""

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from inference.operations.gateway_registry import expire_unread_frames, live_gateways
from tests.support.gateways.cast import POOL

LIVE, DEAD = "gateway-1", "gateway-2"
NO_END = -1


@pytest.fixture
def gateways(redis: Redis) -> Redis:
    """Two gateways with unread frames, of which one has no heartbeat any more."""
    redis.sadd(keys.known_gateways(), LIVE, DEAD)
    redis.set(keys.gateway_heartbeat(LIVE), 1, ex=60)
    redis.set(keys.policy_version(), 1)
    redis.sadd(keys.known_pools(), POOL)
    for gateway_id in (LIVE, DEAD):
        redis.rpush(keys.gateway_frames(gateway_id, POOL), b"frames")
    return redis


def test_the_frames_of_a_gateway_that_died_expire_when_it_is_forgotten(gateways: Redis) -> None:
    assert live_gateways(gateways) == [LIVE]
    assert 0 < int(gateways.ttl(keys.gateway_frames(DEAD, POOL))) <= 60
    assert gateways.ttl(keys.gateway_frames(LIVE, POOL)) == NO_END


def test_frames_that_came_after_it_was_forgotten_expire_too(gateways: Redis) -> None:
    """As of a worker that was paused for an hour."""
    gateways.delete(keys.gateway_frames(DEAD, POOL))
    live_gateways(gateways)
    gateways.rpush(keys.gateway_frames(DEAD, POOL), b"late")
    assert expire_unread_frames(gateways) == 1
    assert 0 < int(gateways.ttl(keys.gateway_frames(DEAD, POOL))) <= 60
    assert gateways.ttl(keys.gateway_frames(LIVE, POOL)) == NO_END


def test_looking_again_does_not_put_the_end_off(gateways: Redis) -> None:
    gateways.expire(keys.gateway_frames(DEAD, POOL), 5)
    expire_unread_frames(gateways)
    assert int(gateways.ttl(keys.gateway_frames(DEAD, POOL))) <= 5
