"""After everything else of the suite: no API key and no prompt in a log, in Redis or PostgreSQL."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import redis
from psycopg import sql

from gpu_workers.config import read_env_file
from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

PROMPT_CANARY = "canary-of-a-prompt-7f3a"


@pytest.fixture(scope="module")
def places(live_stack: LiveStack) -> dict[str, bytes]:
    """By name, all that is kept once the requests with the canary have ended."""
    ids = []
    for stream in (False, True):
        for key in (live_stack.acme_key, live_stack.globex_key):
            answer = live_stack.ask(
                key, f"Say {PROMPT_CANARY}", stream=stream, user=PROMPT_CANARY, max_tokens=8
            )
            assert answer.status_code == 200
            ids.append(answer.headers["x-request-id"])
    refused = live_stack.ask(live_stack.acme_key, PROMPT_CANARY, temperature=PROMPT_CANARY)
    assert refused.status_code == 400
    wrong_key = live_stack.acme_key[:-6] + "000000"
    assert live_stack.ask(wrong_key, PROMPT_CANARY).status_code == 401
    condition = f"request_id IN ({', '.join(repr(each) for each in ids)})"
    eventually_sync(lambda: len(live_stack.usage_rows(condition)) == len(ids), 15)
    env = read_env_file(live_stack.var_folder / "demo.env")
    return {
        **{log.name: log.read_bytes() for log in (live_stack.var_folder / "log").iterdir()},
        "the dispatch Redis": b"\n".join(everything_in_redis(env["PENSTOCK_DISPATCH_REDIS_URL"])),
        "the other Redis": b"\n".join(everything_in_redis(env["PENSTOCK_REDIS_URL"])),
        "PostgreSQL": b"\n".join(everything_in_postgres(env["PENSTOCK_DATABASE_URL"])),
    }


def everything_in_redis(url: str) -> Iterator[bytes]:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(count=1000):
            yield key
            yield repr(_value(client, key)).encode()


def _value(client: "redis.Redis", key: bytes) -> Any:
    match client.type(key):
        case b"string":
            return client.get(key)
        case b"hash":
            return client.hgetall(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"set":
            return client.smembers(key)
        case b"zset":
            return client.zrange(key, 0, -1)
        case b"stream":
            return client.xrange(key)
    return None  # expired in between


def everything_in_postgres(url: str) -> Iterator[bytes]:
    with psycopg.connect(url, options="-c role=penstock_operator") as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND has_table_privilege(oid, 'SELECT')"
        ).fetchall()
        assert len(tables) > 20
        for (table,) in tables:
            query = sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(sql.Identifier(table))
            with connection.cursor().copy(query) as copy:
                for row in copy:
                    yield bytes(row)


def holding(places: dict[str, bytes], text: str) -> list[str]:
    """Where a text is, as it stands or as PostgreSQL shows bytes."""
    forms = (text.encode(), text.encode().hex().encode())
    return [name for name, content in places.items() if any(form in content for form in forms)]


def test_the_search_finds_what_is_there(places: dict[str, bytes]) -> None:
    assert b"penstock-demo" in places["the dispatch Redis"]
    assert b"Acme" in places["PostgreSQL"] and b"penstock-demo" in places["PostgreSQL"]
    assert any(places[name] for name in places if name.endswith(".log"))


def test_no_prompt_is_kept_anywhere(places: dict[str, bytes]) -> None:
    assert holding(places, PROMPT_CANARY) == []


def test_no_key_is_kept_anywhere(live_stack: LiveStack, places: dict[str, bytes]) -> None:
    for key in (live_stack.acme_key, live_stack.globex_key):
        assert holding(places, key.split("-")[2]) == []
