"""The run's own servers: a pytest plugin, loaded by `-p` before Django's settings.

Two Redis servers start at once (tens of milliseconds); PostgreSQL only when a test asks for the
database. They have their own ports, folders and passwords, never those of `make up`, and end
with the run, also when it is killed.
"""

import atexit
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from redis import Redis

from tests.support.places import LOOPBACK, ROOT, free_port

sys.path[:0] = [str(ROOT), str(ROOT / "platform")]

from control_plane import redis_acl  # noqa: E402
from local_stack.postgres_server import POSTGRES_NAME, PostgresServer, find_postgres  # noqa: E402
from local_stack.redis_server import RedisServer, find_redis  # noqa: E402
from local_stack.services import unprivileged_user  # noqa: E402

# Of all gateways too, or the intake would believe none of them.
PEPPER = b"pepper-of-the-tests-" + b"p" * 32


class TestServers:
    """What one run of the tests stands on."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # PostgreSQL's user, which is not us where we are root, must be able to reach into it.
        folder.chmod(0o711)
        user = unprivileged_user()
        self.postgres = PostgresServer(
            binaries=find_postgres(folder, user),
            folder=folder / "postgres",
            port=free_port(),
            password=secrets.token_hex(16),
            owner_password=secrets.token_hex(16),
            web_password=secrets.token_hex(16),
            user=user,
            durable=False,
        )
        # The tests' own user may do everything; the processes and settings under test have theirs.
        self.dispatch_redis = self._redis(
            "dispatch-redis",
            redis_acl.RedisUser(
                name="tests", password=secrets.token_hex(16), permissions=("~*", "&*", "+@all")
            ),
            redis_acl.control_plane(secrets.token_hex(16)),
            redis_acl.gateway(secrets.token_hex(16)),
        )
        self.redis = self._redis("redis")
        self._owner = os.getpid()
        self._running: list[subprocess.Popen[bytes]] = []
        self._postgres_started = False
        self._postgres: subprocess.Popen[bytes] | None = None

    def _redis(self, name: str, *users: redis_acl.RedisUser) -> RedisServer:
        return RedisServer(
            binary=find_redis(),
            folder=self.folder / name,
            port=free_port(),
            password=secrets.token_hex(16),
            users=users,
        )

    @property
    def superuser_url(self) -> str:
        """For what no role of the product may do: changing tables between tests."""
        name, password, port = POSTGRES_NAME, self.postgres.password, self.postgres.port
        return f"postgresql://{name}:{password}@{LOOPBACK}:{port}/{name}"

    def worker_redis_url(self, pool: str) -> str:
        """The dispatch Redis as the user of a pool's workers, made at the first call."""
        user = redis_acl.worker(pool, self.dispatch_redis.password)
        with Redis.from_url(self.dispatch_redis.url) as admin:
            admin.execute_command("ACL", "SETUSER", user.name, *user.rules)
        return user.url(LOOPBACK, self.dispatch_redis.port)

    def start(self) -> None:
        self._dispatch = self._start(self.dispatch_redis)
        self._start(self.redis)
        for server in (self.dispatch_redis, self.redis):
            server.wait()

    def start_postgres(self) -> None:
        """Once; later calls do nothing."""
        if not self._postgres_started:
            self._postgres_started = True
            self._postgres = self._start(self.postgres)
            self.postgres.wait()

    def kill_dispatch_redis(self) -> None:
        """As by kill -9: all that it held is lost."""
        self._dispatch.kill()
        self._dispatch.wait()
        self._running.remove(self._dispatch)

    def start_dispatch_redis(self) -> None:
        """Again, empty, on the same port and with the users of its file."""
        self._dispatch = self._run(self.dispatch_redis)
        self.dispatch_redis.wait()

    def pause_dispatch_redis(self) -> None:
        """It stands still, and its clients' connections stay open."""
        self._dispatch.send_signal(signal.SIGSTOP)

    def resume_dispatch_redis(self) -> None:
        self._dispatch.send_signal(signal.SIGCONT)

    def restart_postgres(self) -> None:
        """At once, without a checkpoint: it recovers from its log, as after a crash."""
        assert self._postgres is not None, "start_postgres() comes first"
        self._postgres.send_signal(signal.SIGQUIT)
        self._postgres.wait()
        self._running.remove(self._postgres)
        self._postgres = self._run(self.postgres)
        self.postgres.wait()

    def stop_postgres(self) -> None:
        """For good: what is asked of it from now on fails, as when its machine is gone."""
        assert self._postgres is not None, "start_postgres() comes first"
        self._postgres.send_signal(signal.SIGINT)
        self._postgres.wait()
        self._running.remove(self._postgres)

    def environ(self) -> dict[str, str]:
        """What control plane, gateway and workers of a test run read."""
        return {
            "PENSTOCK_SECRET_KEY": "secret-key-of-the-tests-" + "s" * 32,
            "PENSTOCK_API_KEY_PEPPER": PEPPER.decode(),
            "PENSTOCK_DATABASE_URL": self.postgres.url,
            "PENSTOCK_OWNER_DATABASE_URL": self.postgres.owner_url,
            "PENSTOCK_DISPATCH_REDIS_URL": self.dispatch_redis.url_of(redis_acl.CONTROL_PLANE),
            "PENSTOCK_GATEWAY_REDIS_URL": self.dispatch_redis.url_of(redis_acl.GATEWAY),
            "PENSTOCK_REDIS_URL": self.redis.url,
            "PENSTOCK_ALLOWED_HOSTS": "testserver,localhost,127.0.0.1",
            "PENSTOCK_ALLOWED_ORIGINS": "http://testserver,http://localhost",
            "PENSTOCK_PUBLIC_URL": "http://testserver",
            "PENSTOCK_BLOB_STORE_URL": f"file:{self.folder / 'blobs'}",
        }

    def stop(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked child of the run is ending, not the run
        for process in self._running:
            process.send_signal(2)
        for process in self._running:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, server: PostgresServer | RedisServer) -> subprocess.Popen[bytes]:
        server.prepare()
        return self._run(server)

    def _run(self, server: PostgresServer | RedisServer) -> subprocess.Popen[bytes]:
        with (self.folder / f"{server.folder.name}.log").open("ab") as log:
            # A process group of its own: Ctrl-C reaches the tests, and the servers through stop().
            process = subprocess.Popen(
                server.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        self._running.append(process)
        return process


@cache
def servers() -> TestServers:
    """This run's servers, started at the first call."""
    started = TestServers(Path(tempfile.mkdtemp(prefix="penstock-tests-")))
    atexit.register(started.stop)
    started.start()
    return started


for _name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
    # A variable of the developer's shell or running stack must not reach the tests.
    del os.environ[_name]
os.environ.update(servers().environ())
