"""What the stack's Redis keeps of the commands that it was sent: nothing."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_stack.redis_server import RedisServer, find_redis
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from tests.support.places import LOOPBACK, free_port
from tests.support.polling import eventually_sync

PROMPT = "canary-of-a-prompt-in-redis-4e1b"
FOR_EVER = ("EVAL", "while true do end", "1", "key", PROMPT)


@contextmanager
def started(
    folder: Path, *further: str, keeps: bool = False
) -> Iterator[tuple[RedisServer, "subprocess.Popen[bytes]", Path]]:
    """A server with these further settings, its process and its log. With `keeps` it has none of
    ours that say what is kept."""
    server = RedisServer(
        binary=find_redis(), folder=folder / "redis", port=free_port(), password="p" * 16
    )
    server.prepare()
    config = server.folder / "redis.conf"
    lines = config.read_text().splitlines()
    if keeps:
        lines = [line for line in lines if not line.startswith(("crash-log", "slowlog"))]
    config.write_text("\n".join([*lines, *further]) + "\n")
    log = folder / "redis.log"
    with log.open("wb") as output:
        process = subprocess.Popen(server.command, stdout=output, stderr=output)
    try:
        server.wait()
        yield server, process, log
    finally:
        process.kill()
        process.wait()


def said_at_its_crash(folder: Path, *, keeps: bool) -> str:
    """The log of a server that dies of a wrong address in the middle of a command."""
    # Where a server hides what users sent by itself, it is told not to.
    further = ["busy-reply-threshold 20", "loglevel notice"]
    with started(folder, *further, keeps=keeps) as (server, process, log):
        with socket.create_connection((LOOPBACK, server.port)) as asking:
            asking.sendall(encoded("AUTH", "p" * 16) + encoded(*FOR_EVER))
            eventually_sync(lambda: is_busy(server), 10)
            os.kill(process.pid, signal.SIGSEGV)
            process.wait(timeout=20)
        return log.read_text(errors="replace")


def is_busy(server: RedisServer) -> bool:
    with Redis.from_url(server.url, socket_timeout=2) as client:
        try:
            client.get("key")
        except RedisConnectionError:
            return False
        except RedisError as error:
            return "busy" in str(error).lower()
    return False


def encoded(*words: str) -> bytes:
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts).encode()


def test_without_our_settings_it_would_report_its_crash(tmp_path: Path) -> None:
    assert "BUG REPORT" in said_at_its_crash(tmp_path, keeps=True)


def test_a_crash_tells_nothing_of_the_command_that_ran(tmp_path: Path) -> None:
    said = said_at_its_crash(tmp_path, keeps=False)
    assert "BUG REPORT" not in said and PROMPT not in said


@pytest.mark.parametrize(("keeps", "kept"), [(True, 1), (False, 0)])
def test_a_slow_command_is_not_remembered(tmp_path: Path, keeps: bool, kept: int) -> None:
    with started(tmp_path, keeps=keeps) as (server, _, _), Redis.from_url(server.url) as client:
        if keeps:
            client.config_set("slowlog-log-slower-than", 0)
        client.set("key", PROMPT)
        remembered = [entry for entry in client.slowlog_get() if PROMPT in str(entry)]
    assert len(remembered) == kept
