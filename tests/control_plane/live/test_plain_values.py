"""Django's cache holds plain values, and makes nothing of what others have put there."""

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from redis import Redis


class Bomb:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.mark.parametrize(
    "value", ["text", "12", b"bytes", b"12", 1.5, True, False, [1, "a"], {"a": [1.0]}, 7, -7, 2**40]
)
def test_a_plain_value_comes_back_as_it_was(value: object) -> None:
    cache.set("plain", value, 10)
    found = cache.get("plain")
    assert (found, type(found)) == (value, type(value))


def test_what_is_counted_is_counted_by_redis() -> None:
    cache.set("count", 1, 10)
    assert cache.incr("count", 2) == 3
    assert cache.get("count") == 3


@pytest.mark.parametrize("value", [datetime.now(UTC), object(), {"at": object()}, (1, 2)])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        cache.set("not-plain", value, 10)


def test_nothing_that_lies_in_the_cache_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "ran"
    with Redis.from_url(settings.PENSTOCK_REDIS_URL) as redis:
        redis.set(cache.make_key("bomb"), pickle.dumps(Bomb(path)), ex=10)
    assert cache.get("bomb") is None
    assert not path.exists()
