"""One URL for a Redis or for its Sentinels: parsed, refused, and followed through a failover."""

from collections.abc import Iterator

import pytest
from redis.exceptions import RedisError

from gpu_workers.protocol.redis_url import (
    RedisUrlError,
    connect,
    connect_async,
    connect_async_bounded,
    parse_sentinel,
)
from tests.support.polling import eventually
from tests.support.redis_servers.sentinels import Sentinels, sentinels


def test_a_sentinel_url_names_sentinels_master_and_database() -> None:
    parts = parse_sentinel("redis+sentinel://gate%2Fway:p%40ss@a:26379,[::1]:26380/main/2")
    assert parts.sentinels == (("a", 26379), ("::1", 26380))
    assert (parts.master_name, parts.database) == ("main", 2)
    assert (parts.username, parts.password) == ("gate/way", "p@ss")
    assert "p@ss" not in repr(parts)


def test_a_database_and_a_user_may_be_left_out() -> None:
    parts = parse_sentinel("redis+sentinel://a:1/main")
    assert (parts.database, parts.username, parts.password) == (0, None, None)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://",
        "redis+sentinel://:hunter2@a:1",
        "redis+sentinel://:hunter2@a:1//0",
        "redis+sentinel://:hunter2@a/main/0",
        "redis+sentinel://:hunter2@a:1,b:99999/main/0",
        "redis+sentinel://:hunter2@a:1/main/first",
    ],
)
def test_a_bad_sentinel_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(RedisUrlError) as error:
        parse_sentinel(url)
    assert "hunter2" not in str(error.value)


@pytest.fixture
def watched() -> Iterator[Sentinels]:
    with sentinels() as running:
        yield running


@pytest.mark.stack
async def test_every_kind_of_client_follows_a_failover(watched: Sentinels) -> None:
    clients = [
        connect_async(watched.url, socket_timeout=1),
        connect_async_bounded(watched.url, max_connections=2, wait_seconds=1, socket_timeout=1),
    ]
    with connect(watched.url, socket_timeout=1) as blocking:
        blocking.set("written", "before")
        assert [await client.get("written") for client in clients] == [b"before", b"before"]
        blocking.wait(1, 1000)
        dead = watched.fail_over()

        async def all_write() -> bool:
            try:
                blocking.set("written", "after")
                return all([await client.set("written", "after") for client in clients])
            except (RedisError, OSError):
                return False

        await eventually(all_write, 20)
        assert watched.master_port != dead
        assert await clients[0].get("written") == b"after"
    for client in clients:
        await client.aclose()
