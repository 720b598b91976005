"""The cache's connections outlive requests, each of which has a cache object of its own."""

from threading import Thread

from django.core.cache import cache, caches
from redis import Redis


def test_requests_do_not_connect_anew_to_the_cache(redis_url: str) -> None:
    seen: list[object] = []

    def as_a_request() -> None:
        cache.set("shared", 1, timeout=10)
        seen.append(caches["default"])

    with Redis.from_url(redis_url) as redis:
        as_a_request()
        before = int(redis.info("stats")["total_connections_received"])
        for _ in range(20):
            request = Thread(target=as_a_request)
            request.start()
            request.join()
        after = int(redis.info("stats")["total_connections_received"])
    assert len(set(map(id, seen))) == 21, "each has a cache object of its own"
    assert after == before
