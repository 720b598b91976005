"""What each role may do on the dispatch Redis, asked of a real one; and the file for operators.

That each role may do all that it has to is shown wherever its process runs: gateways and workers of
the tests sign in as theirs.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from control_plane import redis_acl
from local_stack.redis_server import RedisServer, find_redis
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from gpu_workers.protocol import functions, keys
from inference.redis_functions import DISPATCH, library_text
from tests.support.commands import printed, refused
from tests.support.places import free_port

POOL, OTHER = "pool-of-acme", "pool-of-globex"

Command = tuple[str | bytes | int, ...]


@pytest.fixture
def worker(functions_loaded: None, worker_redis_url: Callable[[str], str]) -> Iterator[Redis]:
    with Redis.from_url(worker_redis_url(POOL)) as redis:
        yield redis


@pytest.fixture
def gateway(functions_loaded: None, gateway_redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(gateway_redis_url) as redis:
        yield redis


SERVER_COMMANDS: list[Command] = [
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "maxmemory", 1),
    ("KEYS", "*"),
    ("SCAN", 0),
    ("RANDOMKEY",),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("FUNCTION", "LOAD", "REPLACE", "#!lua name=penstock_dispatch_1\n"),
    ("FUNCTION", "FLUSH"),
    ("EVAL", "return redis.call('get', '{policy}:version')", 0),
    ("SCRIPT", "LOAD", "return 1"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "worker-pool-of-acme", "~*"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "TRACKING", "ON", "BCAST"),
    ("MONITOR",),
    ("SHUTDOWN",),
    ("SAVE",),
    ("REPLICAOF", "127.0.0.1", 1),
    ("MIGRATE", "127.0.0.1", 1, "key", 0, 1),
    ("SWAPDB", 0, 1),
    ("PUBLISH", "channel", "word"),
    ("SUBSCRIBE", "channel"),
]

FORBIDDEN_TO_WORKERS: list[Command] = [
    # keys of adapters: another pool's, and to write its own
    ("HGETALL", keys.pool_adapter_sources(OTHER)),
    ("HSET", keys.pool_adapter_sources(POOL), "adapter", "forged"),
    ("DEL", keys.pool_adapter_sources(POOL)),
    # policy: neither to be written nor to be read
    ("SET", keys.policy_version(), "9"),
    ("HSET", keys.policy_api_keys(), "id", "forged"),
    ("HDEL", keys.policy_models(), "model"),
    ("DEL", keys.policy_api_keys()),
    ("GET", keys.policy_version()),
    ("HGETALL", keys.policy_api_keys()),
    ("HSET", "{uses}:keys", "id", "1"),
    ("HGETALL", "{uses}:digests"),
    # another pool: its prompts, its workers' inboxes, its records
    ("HGETALL", keys.pool_request(OTHER, "request")),
    ("HGET", keys.pool_request(OTHER, "request"), "envelope"),
    ("BLMPOP", 1, 1, keys.pool_inbox(OTHER, "worker#1"), "LEFT"),
    ("XRANGE", keys.pool_usage(OTHER), "-", "+"),
    ("XADD", keys.pool_usage(OTHER), "*", "record", b"forged"),
    (
        "FCALL",
        functions.FINISH,
        1,
        keys.pool_prefix(OTHER),
        "request",
        1,
        b"forged",
        1,
        1,
        0,
        "",
        "",
    ),
    ("HSET", keys.pool_flow(OTHER, "interactive", "acme"), "running", 0),
    ("SPOP", keys.pool_receipts(OTHER, "outbox"), 10),
    ("SADD", keys.pool_workers_resynced(OTHER), "w"),
    (
        "FCALL",
        functions.APPEND_USAGE,
        1,
        keys.pool_prefix(OTHER),
        "outbox",
        1,
        "",
        "waste",
        b"",
    ),
    ("FCALL", functions.CLAIM, 1, keys.pool_prefix(OTHER), "w#1", b"", 1, 0, 0, 1),
    ("FCALL", functions.POST_ADAPTERS, 1, keys.pool_prefix(OTHER), "w#1", "", "blue", 3, 0),
    ("FCALL", functions.BEAT, 1, keys.pool_prefix(OTHER), "w#1", b"", 0),
    ("FCALL", functions.HELD, 2, keys.pool_prefix(POOL), keys.pool_prefix(OTHER), "w#1"),
    ("COPY", keys.pool_request(OTHER, "request"), keys.pool_request(POOL, "request")),
    ("SUNIONSTORE", f"{keys.pool_prefix(POOL)}:stolen", keys.pool_worker_requests(OTHER, "w#1")),
    # the same, by a name that only begins alike
    ("GET", f"{{m:{POOL}-2}}:sequence"),
    # tenants and tickets
    ("HGETALL", keys.tenant_reservations("acme")),
    ("FCALL", functions.SETTLE, 1, keys.tenant_prefix("acme"), "request", 0, 0),
    ("SMEMBERS", keys.tenants_with_reservations()),
    ("GET", keys.stream_ticket("digest")),
    # gateways: frames are for leaving there, not for reading
    ("LPOP", keys.gateway_frames("gateway", POOL)),
    ("LRANGE", keys.gateway_frames("gateway", POOL), 0, -1),
    ("LINDEX", keys.gateway_frames("gateway", POOL), 0),
    ("MEMORY", "USAGE", keys.gateway_heartbeat("gateway")),
    ("DEL", keys.gateway_frames("gateway", POOL)),
    ("UNLINK", keys.gateway_frames("gateway", POOL)),
    ("EXPIRE", keys.gateway_frames("gateway", POOL), 1),
    ("PEXPIREAT", keys.gateway_frames("gateway", POOL), 1),
    ("PERSIST", keys.gateway_frames("gateway", POOL)),
    ("LTRIM", keys.gateway_frames("gateway", POOL), 1, 0),
    ("LPUSH", keys.gateway_frames("gateway", POOL), "ahead of all others"),
    ("RENAME", keys.gateway_frames("gateway", POOL), keys.pool_inbox(POOL, "worker#1")),
    ("LMOVE", keys.gateway_frames("gateway", POOL), keys.pool_inbox(POOL, "w#1"), "LEFT", "LEFT"),
    ("EXPIRE", keys.gateway_heartbeat("gateway"), 0),
    ("SET", keys.gateway_heartbeat("gateway"), "1"),
    ("SMEMBERS", keys.known_pools()),
    ("SADD", keys.known_pools(), b"\xff"),
    ("RPUSH", keys.gateway_frames("gateway", "another"), "frames"),
    ("RPUSH", keys.gateway_wake("gateway"), "1"),
]

FORBIDDEN_TO_GATEWAYS: list[Command] = [
    ("SET", keys.policy_version(), "9"),
    ("DEL", keys.policy_version()),
    ("HSET", keys.policy_api_keys(), "id", "forged"),
    ("HDEL", keys.policy_models(), "model"),
    ("RENAME", keys.tenant_reservations("acme"), keys.policy_api_keys()),
    ("COPY", keys.tenant_reservations("acme"), keys.policy_models()),
    ("SADD", keys.known_pools(), "invented"),
    ("SMEMBERS", keys.tenants_with_reservations()),
    ("SET", "{uses}:other", "1"),
    ("SET", "anything-else", "1"),
    ("HGETALL", keys.pool_adapter_sources(POOL)),
]


@pytest.mark.parametrize("command", FORBIDDEN_TO_WORKERS + SERVER_COMMANDS, ids=repr)
def test_a_worker_may_not(worker: Any, command: Command) -> None:
    with pytest.raises(NoPermissionError):
        worker.execute_command(*command)


@pytest.mark.parametrize("command", FORBIDDEN_TO_GATEWAYS + SERVER_COMMANDS, ids=repr)
def test_a_gateway_may_not(gateway: Any, command: Command) -> None:
    with pytest.raises(NoPermissionError):
        gateway.execute_command(*command)


@pytest.mark.parametrize(
    "command",
    [
        ("HGETALL", keys.policy_api_keys()),
        ("GET", keys.policy_version()),
        ("HSET", "{uses}:keys", "id", "1"),
        ("HINCRBY", "{uses}:digests", "id", 1),
        ("FUNCTION", "LIST", "LIBRARYNAME", functions.DISPATCH_LIBRARY),
        ("FCALL", functions.SETTLE, 1, keys.tenant_prefix("acme"), "request", 0, 0),
        ("FCALL", functions.CANCEL, 1, keys.pool_prefix(OTHER), "request"),
    ],
    ids=repr,
)
def test_a_gateway_may(gateway: Any, command: Command) -> None:
    gateway.execute_command(*command)


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"redis\.p?call\('(\w+)'", library_text(DISPATCH))))
)
def test_workers_and_gateways_may_do_whatever_the_functions_of_dispatch_do(
    worker: Any, gateway: Any, name: str
) -> None:
    """Redis checks each call in a function against the rights of whoever called that."""
    arity = worker.command()[name.lower()]["arity"]
    key = f"{keys.pool_prefix(POOL)}:probe"
    for user in (worker, gateway):
        try:
            user.execute_command(name, *[key] * (abs(arity) - 1))
        except NoPermissionError:
            raise
        except ResponseError:
            pass  # for what the arguments are
        user.delete(key)


def test_a_worker_may_leave_frames_for_a_gateway(worker: Redis) -> None:
    assert worker.rpush(keys.gateway_frames("gateway", POOL), b"frames") == 1
    assert not worker.exists(keys.gateway_heartbeat("gateway"))


def test_a_worker_may_see_how_much_a_gateway_has_not_read(worker: Any) -> None:
    worker.rpush(keys.gateway_frames("gateway", POOL), b"frames" * 100)
    assert worker.memory_usage(keys.gateway_frames("gateway", POOL), samples=16) > 600


def test_the_control_plane_is_not_the_servers_administrator() -> None:
    with Redis.from_url(os.environ["PENSTOCK_DISPATCH_REDIS_URL"]) as control_plane:
        for command in (("CONFIG", "GET", "*"), ("ACL", "LIST"), ("FLUSHALL",), ("SHUTDOWN",)):
            with pytest.raises(NoPermissionError):
                control_plane.execute_command(*command)
        control_plane.set("anything", "1", ex=1)
        assert control_plane.info("server")


def test_the_policy_pattern_covers_the_snapshot() -> None:
    for name in (keys.policy_version(), keys.policy_api_keys(), keys.policy_models()):
        assert name.startswith("{policy}:")


@pytest.mark.parametrize("pool", ["*", "a*", "a b", "a}", "[ab]", "a?", "", "-a", "a\n+@all"])
def test_a_pools_name_cannot_widen_its_pattern(pool: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(pool))):
        redis_acl.worker(pool, "password")


def test_a_user_never_shows_its_password() -> None:
    user = redis_acl.worker(POOL, "the-password")
    assert "the-password" not in repr(user)
    assert "the-password" not in redis_acl.acl_file([user])


# manage.py redis_acl -----------------------------------------------------------------------------


@contextmanager
def running_redis(folder: Path, acl: str) -> Iterator[RedisServer]:
    """A server with this file of users."""
    password = urlsplit(os.environ["PENSTOCK_DISPATCH_REDIS_URL"]).password or ""
    server = RedisServer(
        binary=find_redis(),
        folder=folder / "redis",
        port=free_port(),
        password="",
        users=(redis_acl.control_plane(password),),
    )
    server.prepare()
    (server.folder / "users.acl").write_text(acl)
    process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL)
    try:
        server.wait()
        yield server
    finally:
        process.terminate()
        process.wait()


def test_the_printed_file_starts_a_server_that_knows_its_roles(
    tmp_path: Path,
) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("pool/a=secret-of-a\n")
    arguments = ("--pool", "pool/a", "--pool", "b", "--worker-passwords", str(passwords))
    acl = printed("redis_acl", *arguments)
    assert [line.split()[1] for line in acl.splitlines()] == [
        *("default", "control-plane", "gateway", "worker-pool/a", "worker-b")
    ]
    made = dict(line.split("=") for line in passwords.read_text().splitlines())
    assert made["pool/a"] == "secret-of-a"
    assert hashlib.sha256(made["b"].encode()).hexdigest() in acl
    assert passwords.stat().st_mode & 0o777 == 0o600
    assert printed("redis_acl", *arguments) == acl
    with running_redis(tmp_path, acl) as server:
        port = server.port
        user = redis_acl.worker("pool/a", "secret-of-a")
        with Redis.from_url(user.url("127.0.0.1", port)) as worker:
            assert worker.get("{m:pool/a}:sequence") is None
            with pytest.raises(NoPermissionError):
                worker.get("{m:b}:sequence")
        for nobody in (f"redis://127.0.0.1:{port}", f"redis://:x@127.0.0.1:{port}"):
            with Redis.from_url(nobody) as stranger, pytest.raises(AuthenticationError):
                stranger.ping()
        more = printed("redis_acl", *arguments, "--pool", "added")
        (server.folder / "users.acl").write_text(more)
        with Redis.from_url(server.url) as control_plane:
            assert control_plane.acl_load()
        added = dict(line.split("=") for line in passwords.read_text().splitlines())["added"]
        url = redis_acl.worker("added", added).url("127.0.0.1", port)
        with Redis.from_url(url) as worker:
            assert worker.ping()


def test_a_url_without_its_role_is_told_by_its_variable(settings: Any) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://:password@127.0.0.1:6379/0"
    assert "PENSTOCK_DISPATCH_REDIS_URL" in refused("redis_acl")


def test_pools_need_a_file_of_passwords_and_names_of_pools(tmp_path: Path) -> None:
    assert "--worker-passwords" in refused("redis_acl", "--pool", "a")
    made = str(tmp_path / "made")
    assert "'a*'" in refused("redis_acl", "--pool", "a*", "--worker-passwords", made)
    missing = str(tmp_path / "no" / "x")
    assert missing in refused("redis_acl", "--pool", "a", "--worker-passwords", missing)
