"""Clients of a Redis by its URL: one server, or the master that Sentinels name at the moment.

redis://user:password@host:port/0
redis+sentinel://user:password@host:port,host:port/<master name>/0

User and password are those of the Redis itself. After a failover a client asks the Sentinels for
the new master when it connects again, which it does as soon as the old one has closed or answers
that it is read-only.
"""

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from redis import Redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

SENTINEL_SCHEME: Final = "redis+sentinel"
SCHEMES: Final = ("redis", "rediss", "unix", SENTINEL_SCHEME)
_EXPECTED: Final = f"expected {SENTINEL_SCHEME}://host:port,host:port/<master name>/<database>"
# A Sentinel that does not answer is passed over for the next one.
_SENTINEL_SECONDS: Final = 1.0


class RedisUrlError(ValueError):
    """Not a valid Redis URL. The message repeats nothing of the URL, as that holds a password."""


@dataclass(frozen=True, kw_only=True)
class SentinelUrl:
    """The parts of a `redis+sentinel://` URL."""

    sentinels: tuple[tuple[str, int], ...]
    master_name: str
    database: int
    username: str | None
    password: str | None = field(repr=False)

    @property
    def login(self) -> dict[str, Any]:
        return {"db": self.database, "username": self.username, "password": self.password}


def is_sentinel(url: str) -> bool:
    return url.startswith(f"{SENTINEL_SCHEME}://")


def parse_sentinel(url: str) -> SentinelUrl:
    """Parse a `redis+sentinel://` URL. Raises `RedisUrlError` if it is malformed.

    Written here because the standard library knows no URL with several hosts.
    """
    login, _, rest = url.removeprefix(f"{SENTINEL_SCHEME}://").rpartition("@")
    hosts, _, path = rest.partition("/")
    master_name, _, database = path.partition("/")
    username, _, password = login.partition(":")
    if not hosts or not master_name or not (database or "0").isdecimal():
        raise RedisUrlError(_EXPECTED)
    return SentinelUrl(
        sentinels=tuple(_address(each) for each in hosts.split(",")),
        master_name=unquote(master_name),
        database=int(database or "0"),
        username=unquote(username) or None,
        password=unquote(password) or None,
    )


def connect(url: str, **options: Any) -> Redis:
    """Return a client; `options` are redis-py's. Raises `RedisUrlError` if the Sentinel URL is
    malformed, `ValueError` if another URL is."""
    if not is_sentinel(url):
        return Redis.from_url(url, **options)
    parts = parse_sentinel(url)
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        parts.sentinels,
        sentinel_kwargs={
            "socket_timeout": _SENTINEL_SECONDS,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "retry": Retry(NoBackoff(), 0),
        },
    )
    client: Redis = sentinel.master_for(parts.master_name, **parts.login, **options)  # type: ignore[no-untyped-call]
    return client


def connect_async(url: str, **options: Any) -> AsyncRedis:
    """Return an asyncio client; otherwise as `connect`."""
    if not is_sentinel(url):
        return AsyncRedis.from_url(url, **options)
    parts = parse_sentinel(url)
    return AsyncRedis.from_pool(
        _MasterPool(  # type: ignore[no-untyped-call]
            parts.master_name, _async_sentinel(parts), **parts.login, **options
        )
    )


def connect_async_bounded(
    url: str, *, max_connections: int, wait_seconds: float, **options: Any
) -> AsyncRedis:
    """Return an asyncio client that waits up to `wait_seconds` for a free connection, where the
    ordinary one fails at once. Raises as `connect` does."""
    options |= {"max_connections": max_connections, "timeout": wait_seconds}
    if not is_sentinel(url):
        return AsyncRedis.from_pool(BlockingConnectionPool.from_url(url, **options))
    parts = parse_sentinel(url)
    return AsyncRedis.from_pool(
        _BoundedMasterPool(  # type: ignore[no-untyped-call]
            parts.master_name, _async_sentinel(parts), **parts.login, **options
        )
    )


class _MasterPool(SentinelConnectionPool):
    """Closes its connections to the Sentinels too, which redis-py leaves to their owner."""

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


class _BoundedMasterPool(_MasterPool, BlockingConnectionPool):
    """Takes `timeout` and `max_connections` as `BlockingConnectionPool` does."""


def _async_sentinel(parts: SentinelUrl) -> AsyncSentinel:
    return AsyncSentinel(  # type: ignore[no-untyped-call]
        parts.sentinels,
        sentinel_kwargs={
            "socket_timeout": _SENTINEL_SECONDS,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "retry": AsyncRetry(NoBackoff(), 0),
        },
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise RedisUrlError(_EXPECTED)
    return host.strip("[]"), int(port)
