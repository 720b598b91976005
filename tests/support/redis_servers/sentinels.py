"""A master, its replica and a Sentinel that watches them: real servers, loopback only."""

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from local_stack.redis_server import find_redis
from redis import Redis
from redis.exceptions import RedisError

from tests.support.places import LOOPBACK, free_port
from tests.support.polling import eventually_sync

MASTER_NAME = "penstock"
PASSWORD = "password-of-the-sentinel-tests"
DOWN_AFTER_MS = 500


class Sentinels:
    """`url` is what a client is given; `fail_over` kills the master of the moment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = [free_port(), free_port()]
        for port in ports:
            replica = [f"replicaof {LOOPBACK} {ports[0]}"] if port != ports[0] else []
            self._start(
                port,
                f"requirepass {PASSWORD}",
                f"masterauth {PASSWORD}",
                'save ""',
                "appendonly no",
                # At once, not after the five seconds that gather several replicas.
                "repl-diskless-sync-delay 0",
                *replica,
            )
        eventually_sync(lambda: self._is_in_step(ports[1]), 10)
        self._sentinel = free_port()
        self._start(
            self._sentinel,
            f"sentinel monitor {MASTER_NAME} {LOOPBACK} {ports[0]} 1",
            f"sentinel auth-pass {MASTER_NAME} {PASSWORD}",
            f"sentinel down-after-milliseconds {MASTER_NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER_NAME} 3000",
            mode="--sentinel",
        )
        eventually_sync(lambda: self._knows_replica(), 15)

    @property
    def url(self) -> str:
        """The first Sentinel is one that does not answer."""
        nobody = free_port()
        hosts = f"{LOOPBACK}:{nobody},{LOOPBACK}:{self._sentinel}"
        return f"redis+sentinel://:{PASSWORD}@{hosts}/{MASTER_NAME}/0"

    @property
    def master_port(self) -> int:
        with Redis(host=LOOPBACK, port=self._sentinel) as sentinel:
            return int(sentinel.sentinel_get_master_addr_by_name(MASTER_NAME)[1])

    def fail_over(self) -> int:
        """Kills the master; returns its port. The other takes its place soon after."""
        port = self.master_port
        killed = self._processes.pop(port)
        killed.kill()
        killed.wait()
        return port

    def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait(timeout=10)

    def _start(self, port: int, *lines: str, mode: str | None = None) -> None:
        config = self._folder / f"{port}.conf"
        folder = self._folder / str(port)
        folder.mkdir()
        config.write_text("\n".join((f"bind {LOOPBACK}", f"port {port}", f"dir {folder}", *lines)))
        command = [str(find_redis()), str(config), *([mode] if mode else [])]
        with (folder / "log").open("wb") as log:
            self._processes[port] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        eventually_sync(lambda: _answers(port), 10)

    def _is_in_step(self, port: int) -> bool:
        with Redis(host=LOOPBACK, port=port, password=PASSWORD) as replica:
            return bool(replica.info("replication")["master_link_status"] == "up")

    def _knows_replica(self) -> bool:
        with Redis(host=LOOPBACK, port=self._sentinel) as sentinel:
            replicas = sentinel.sentinel_slaves(MASTER_NAME)
        return any(each["flags"] == "slave" for each in replicas)


@contextlib.contextmanager
def sentinels() -> Iterator[Sentinels]:
    with tempfile.TemporaryDirectory(prefix="penstock-sentinels-") as folder:
        started = Sentinels(Path(folder))
        try:
            yield started
        finally:
            started.stop()


def _answers(port: int) -> bool:
    try:
        with Redis(host=LOOPBACK, port=port, password=PASSWORD) as client:
            return bool(client.ping())
    except RedisError as error:
        return "without any password" in str(error) or "AUTH" in str(error)
