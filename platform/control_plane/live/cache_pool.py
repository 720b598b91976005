"""The connections of Django's cache, shared by all requests of a process.

Under ASGI each request has a cache object of its own, and Django's would connect anew for it: a
quarter of what a live page's fragment took.
"""

from functools import cache
from typing import Any

from redis import ConnectionPool


@cache
def _pool(url: str, **options: Any) -> ConnectionPool:
    return ConnectionPool.from_url(url, **options)


class SharedPool(ConnectionPool):
    """What `from_url` returns is the same for the same arguments."""

    @classmethod
    def from_url(cls, url: str, **options: Any) -> ConnectionPool:  # type: ignore[override]
        return _pool(url, **options)
