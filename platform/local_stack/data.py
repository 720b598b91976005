"""The initial data of a stack's servers: functions, tables, the demo's tenants."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from control_plane.private_files import write_private
from redis.exceptions import RedisError

from gpu_workers.config import read_env_file
from gpu_workers.protocol.redis_url import connect_async
from inference.redis_functions import LIBRARIES, FunctionLibrary
from local_stack.services import ServiceError

REDIS_TIMEOUT_SECONDS = 10
MEANWHILE_SECONDS = 0.2
# What `seed_demo` tells of, in the order of demo.env.
ACCOUNTS = (
    "acme_key",
    "acme_email",
    "acme_password",
    "globex_key",
    "globex_email",
    "globex_password",
    "operator_email",
    "operator_password",
)


class Data:
    """Fills the servers that `environ` names, by manage.py of the checkout at `root`.

    Each method can be called again at any time, calls `meanwhile` while it waits, and raises
    `ServiceError` if it fails.
    """

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        log: Path,
        meanwhile: Callable[[], None],
    ) -> None:
        self._root = root
        self._environ = environ
        self._log = log
        self._meanwhile = meanwhile

    def load_functions(self) -> None:
        """Put the Lua functions into the dispatch Redis; here, since workers wait for it."""
        asyncio.run(self._load_functions())

    def migrate(self, owner_database_url: str) -> None:
        """Bring the tables up to date, signed in as their owner."""
        owner = {"PENSTOCK_OWNER_DATABASE_URL": owner_database_url}
        self._manage("migrate", "--no-input", environ=owner)

    def seed(self, file: Path, facts: Mapping[str, str], *, history: bool) -> None:
        """Make operator, tenants, their owners, keys and catalogue, and write them to `file` beside
        `facts`. With `history` a new stack has usage and invoices of before.

        What an earlier run left in the file stays as it is.
        """
        before = read_env_file(file) if file.exists() else {}
        wished = ["--history"] if history else []
        seeded = json.loads(self._manage("seed_demo", "--existing", str(file), "--json", *wished))
        names = {name: f"PENSTOCK_{name.upper()}" for name in ACCOUNTS}
        # A password that is not told is the one that the file has.
        accounts = {line: seeded[name] or before.get(line, "") for name, line in names.items()}
        write_private(file, {**facts, **accounts})

    async def _load_functions(self) -> None:
        url = self._environ["PENSTOCK_DISPATCH_REDIS_URL"]
        try:
            async with connect_async(url, socket_timeout=REDIS_TIMEOUT_SECONDS) as redis:
                loaded = [await FunctionLibrary(redis, files).load() for files in LIBRARIES]
        except RedisError as error:
            raise ServiceError(f"The dispatch Redis rejects our functions: {error}") from None
        if not all(loaded):
            raise ServiceError(
                "The user of PENSTOCK_DISPATCH_REDIS_URL may not load functions: give the "
                "control plane's there, see `manage.py redis_acl`."
            )

    def _manage(self, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
        command = [sys.executable, str(self._root / "manage.py"), *arguments]
        with subprocess.Popen(
            command,
            cwd=self._root,
            env=dict(self._environ) | dict(environ or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            printed, said = self._communicate(process)
        with self._log.open("a") as lines:
            lines.write(f"$ manage.py {arguments[0]}\n{said}\n")
        if process.returncode != 0:
            reason = said.strip().splitlines() or ["no reason given"]
            raise ServiceError(f"manage.py {arguments[0]} failed: {reason[-1]} (see {self._log}).")
        return printed

    def _communicate(self, process: "subprocess.Popen[str]") -> tuple[str, str]:
        while True:
            try:
                return process.communicate(timeout=MEANWHILE_SECONDS)
            except subprocess.TimeoutExpired:
                self._meanwhile()
