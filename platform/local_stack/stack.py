"""One whole Penstock on one machine: `make up` has one, a test run may have another.

A stack is identified by its `var` folder, which holds its secrets, logs, data and the supervisor's
socket; the folder marks every process of the stack. `up` repairs whatever it finds; `down` leaves
nothing running, also when the supervisor was killed.
"""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from control_plane.private_files import write_private_text

from gpu_workers.config import read_env_file
from local_stack import credentials, processes, programs, stack_env
from local_stack.data import ACCOUNTS, Data
from local_stack.first_completion import FirstCompletion, is_healthy
from local_stack.installation.environments import Environment
from local_stack.installation.install import wait_until_made
from local_stack.installation.progress import Progress
from local_stack.own_servers import OwnServers
from local_stack.ports import check_free
from local_stack.postgres_server import PostgresServer
from local_stack.programs import Program
from local_stack.redis_server import RedisServer
from local_stack.services import LOOPBACK, ServiceError, unprivileged_user
from local_stack.settings import StackSettings
from local_stack.supervisor import Supervisor

# Lines of demo.env that say what a stack is, not how it shall be: a shell may have sourced them.
TOLD_BY_US = (
    "PENSTOCK_URL",
    "PENSTOCK_MODEL",
    *(f"PENSTOCK_{name.upper()}" for name in ACCOUNTS),
    "PENSTOCK_OWNER_DATABASE_URL",
)


class StackBusy(ServiceError):
    """Another `make up` or `make down` holds the lock of the stack."""

    def __init__(self) -> None:
        super().__init__(
            "Another `make up` or `make down` is running in this checkout: wait for it."
        )


class Stack:
    """`root` is the checkout, `var` the folder of this stack's state.

    A stack that dies with us, as a test run's does, ends even if we are killed.
    """

    def __init__(
        self,
        root: Path,
        var: Path,
        settings: StackSettings,
        *,
        data_folder: Path | None = None,
        dies_with_us: bool = False,
    ) -> None:
        self.root = root
        self.var = var
        self.settings = settings
        self.supervisor = Supervisor(root, var / "run", var / "log")
        self._given_data_folder = data_folder
        self._dies_with_us = dies_with_us

    # What it is ----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Return the address for people: a name, as an address can have no passkeys."""
        return f"http://localhost:{self.settings.ports.web}"

    @property
    def demo_env_file(self) -> Path:
        """Return the file of addresses, keys and operator account, for people and workers."""
        return self.var / "demo.env"

    @property
    def env_file(self) -> Path:
        """Return the file of the control plane's settings, for manage.py."""
        return self.var / stack_env.NAME

    @property
    def stack_id(self) -> str:
        return hashlib.sha256(str(self.var.resolve()).encode()).hexdigest()[:16]

    @cached_property
    def environ(self) -> dict[str, str]:
        """Return the environment of every service of the stack."""
        secrets = {name: self._secrets[name] for name in credentials.OF_THE_CONTROL_PLANE}
        defaults = secrets | {
            "PENSTOCK_PUBLIC_URL": self.url,
            "PENSTOCK_EMAIL_URL": f"file:{self.var.resolve() / 'mail'}",
            "PENSTOCK_BLOB_STORE_URL": f"file:{self.var.resolve() / 'blobs'}",
            "PENSTOCK_ADAPTER_CACHE": str(self.var.resolve() / "adapter-cache"),
            "PENSTOCK_WORKER_DRAIN_SECONDS": "5",
        }
        if self._has_demo_model:
            defaults["HF_HUB_OFFLINE"] = "1"  # the demo model lies in the checkout
            defaults |= {"PENSTOCK_ADAPTER_SLOTS": "4", "PENSTOCK_ADAPTERS_IN_MEMORY": "32"}
            # So that a request with tools works as it does on vLLM's own server.
            defaults["PENSTOCK_TOOL_CALL_PARSER"] = "hermes"
        given = {
            name: value
            for name, value in self.settings.environ.items()
            if value and name not in TOLD_BY_US and name != "PYTHONDONTWRITEBYTECODE"
        }
        if given.get("PENSTOCK_PUBLIC_URL", self.url) == self.url:
            # Its pages may be opened by address, too.
            by_address = f"http://{LOOPBACK}:{self.settings.ports.web}"
            defaults["PENSTOCK_ALLOWED_ORIGINS"] = f"{self.url},{by_address}"
        paths = {"PYTHONPATH": f"{self.root}:{self.root / 'platform'}", "PYTHONUNBUFFERED": "1"}
        return (
            defaults | given | self.servers.urls() | paths | processes.marker_environ(self.stack_id)
        )

    @property
    def has_demo_adapters(self) -> bool:
        """Return whether the demo's adapters are put in: they are of the demo model, and workers
        without adapter slots would never say what they may change."""
        return self._has_demo_model and self.environ["PENSTOCK_ADAPTER_SLOTS"] != "0"

    @property
    def _has_demo_model(self) -> bool:
        return not self.settings.environ.get("PENSTOCK_MODEL_PATH")

    @cached_property
    def data_folder(self) -> Path:
        """Return the folder of the servers' data: in `var` or, for root, where PostgreSQL's
        unprivileged user can reach it. The choice is recorded."""
        if self._given_data_folder is not None:
            return self._given_data_folder
        record = self.var / "data-folder"
        if record.exists():
            return Path(record.read_text().strip())
        if unprivileged_user() is None:
            folder = self.var / "data"
        else:
            folder = Path("/var/lib") / f"penstock-{self.stack_id}"
        record.write_text(f"{folder}\n")
        return folder

    @cached_property
    def servers(self) -> OwnServers:
        """Return the servers that the stack starts itself."""
        return OwnServers(self.settings, self._secrets, self.data_folder)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of every setting that running processes are started with: another one
        means a restart."""
        ours = {name: value for name, value in self.environ.items() if _is_told(name)}
        everything = [sorted(ours.items()), repr(self.settings.ports), self.settings.gpu_groups]
        everything.append(self.servers.rules())
        return hashlib.sha256(repr(everything).encode()).hexdigest()

    # Up and down ---------------------------------------------------------------------------------

    def up(
        self,
        progress: Progress,
        engine: Environment | None = None,
        *,
        history: bool = False,
    ) -> bool:
        """Start or repair everything; return whether anything had to be done.

        `engine` is the workers' environment, where another process may still be making it: workers
        start once it is made. With `history` the tenants of a new stack have used and been
        invoiced something before. Raises `StackBusy` if another `make up` or `make down` runs,
        `ServiceError` if something does not start, and `InstallError` if nobody makes `engine`.
        """
        with self.locked():
            if self._is_up() and (engine is None or engine.is_made(self.root)):
                return False
            self._make_way(progress)
            servers, apps, workers = self._programs()
            progress.show("Starting PostgreSQL and Redis.")
            self._start_servers(servers, [*apps, *workers])

            # The slowest to start, so they begin as soon as they can.
            def start_workers() -> None:
                self._start_workers(workers, engine)

            data = Data(self.root, self.environ, self.var / "log" / "setup.log", start_workers)
            data.load_functions()
            start_workers()
            self.servers.wait(PostgresServer)
            progress.show("Migrating the database.")
            data.migrate(self.servers.owner_database_url() or "")
            progress.show("Creating the demo tenants.")
            data.seed(self.demo_env_file, self._facts(), history=history)
            self.supervisor.start_programs(apps)
            if engine is not None:
                wait_until_made(self.root, engine, progress)
            start_workers()
            first = self._first_completion()
            first.wait(progress)
            if self.has_demo_adapters:
                first.wait_for_adapters(self.root, progress)
            self._ready_file.touch()
            return True

    def down(self, progress: Progress) -> bool:
        """Stop everything, keep the data; return whether anything ran. Raises `StackBusy` if
        another `make up` or `make down` runs."""
        if not self.var.exists():
            return False
        with self.locked():
            return self._stop(progress)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the stack's lock, so that one `make up` or `make down` runs at a time.

        Raises `StackBusy` if another one does.
        """
        for folder in (self.var, self.var / "run", self.var / "log", self.var / "mail"):
            folder.mkdir(parents=True, exist_ok=True)
        self.var.chmod(0o711)
        for private in ("run", "mail"):
            (self.var / private).chmod(0o700)
        with (self.var / "run" / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackBusy from None
            yield

    def describe(self) -> list[str]:
        """Return one line per program."""
        states = self.supervisor.states().values()
        return [f"{state.name:<16} {state.state:<9} {state.description}" for state in states]

    def _is_up(self) -> bool:
        states = self.supervisor.states()
        return (
            bool(states)
            and all(state.is_up for state in states.values())
            and self._ready_file.exists()
            and self.env_file.exists()
            and self._recorded_fingerprint() == self.fingerprint
            and is_healthy(self.settings.ports.web)
            and self._first_completion().has_ready_worker()
        )

    def _first_completion(self) -> FirstCompletion:
        return FirstCompletion(
            self.supervisor,
            read_env_file(self.demo_env_file),
            web_port=self.settings.ports.web,
            log=self.var / "log",
        )

    def _make_way(self, progress: Progress) -> None:
        """Stop everything, unless supervisord already runs with the same settings."""
        self._ready_file.unlink(missing_ok=True)
        if self.supervisor.is_running():
            if self._recorded_fingerprint() == self.fingerprint:
                return
            progress.say("Settings have changed since the last start: restarting.")
        self._stop(progress)

    def _start_servers(self, servers: list[Program], others: list[Program]) -> None:
        """Start supervisord if it does not run, then the servers; wait until Redis answers."""
        write_private_text(self._worker_redis_url_file, self.servers.worker_redis_url())
        if not self.supervisor.is_running():
            everything = [*servers, *others]
            check_free(everything)
            self.supervisor.start(everything, self.environ, dies_with_us=self._dies_with_us)
            self._fingerprint_file.write_text(self.fingerprint)
        stack_env.write(self.env_file, self.environ, self.servers.owner_database_url() or "")
        states = self.supervisor.states()
        for name, server in self.servers.by_name.items():
            if states[name].is_down:
                server.prepare()
        self.supervisor.start_programs(servers)
        self.servers.wait(RedisServer)

    def _start_workers(self, workers: list[Program], engine: Environment | None) -> None:
        """Start the workers that do not run, or stop them while their packages are replaced."""
        if engine is None or engine.is_made(self.root):
            self.supervisor.start_programs(workers)
        else:
            self.supervisor.stop_programs([each.name for each in workers], timeout_seconds=30)

    def _stop(self, progress: Progress) -> bool:
        self._ready_file.unlink(missing_ok=True)
        states = self.supervisor.states()
        if states:
            progress.show("Stopping.")
            servers = {programs.POSTGRES, programs.DISPATCH_REDIS, programs.REDIS}
            self.supervisor.stop_programs(states.keys() - servers, timeout_seconds=30)
            self.supervisor.stop_programs(servers, timeout_seconds=20)
            self.supervisor.shut_down()
        left = processes.end_all(self.stack_id, [self.data_folder])
        return bool(states or left)

    # Parts ---------------------------------------------------------------------------------------

    @cached_property
    def _secrets(self) -> dict[str, str]:
        return credentials.load_or_create(self.var / "secrets.env")

    def _programs(self) -> tuple[list[Program], list[Program], list[Program]]:
        """Return the servers, our own processes and the GPU workers."""
        ports = self.settings.ports
        apps = [
            programs.web_program(ports.web, self.settings.keep_alive_seconds),
            programs.collector_program(self.root),
            *programs.celery_programs(self.var / "run" / "celerybeat-schedule"),
        ]
        workers = programs.worker_programs(
            self.root / ".venv-engine" / "bin" / "python",
            self.settings.gpu_groups,
            model=self.settings.model,
            metrics_port=ports.worker_metrics,
            redis_url_file=self._worker_redis_url_file,
            outbox_folder=self.var / "outbox",
        )
        return self.servers.programs(), apps, workers

    def _facts(self) -> dict[str, str]:
        """Return the values of demo.env other than keys and accounts."""
        return {
            "PENSTOCK_URL": self.url,
            "PENSTOCK_DISPATCH_REDIS_URL": self.environ["PENSTOCK_DISPATCH_REDIS_URL"],
            "PENSTOCK_REDIS_URL": self.environ["PENSTOCK_REDIS_URL"],
            "PENSTOCK_DATABASE_URL": self.environ["PENSTOCK_DATABASE_URL"],
            "PENSTOCK_OWNER_DATABASE_URL": self.servers.owner_database_url() or "",
            "PENSTOCK_MODEL": self.settings.model,
        }

    # State in var --------------------------------------------------------------------------------

    @property
    def _ready_file(self) -> Path:
        """Return the file that exists from the first completion until anything is stopped."""
        return self.var / "run" / "ready"

    @property
    def _worker_redis_url_file(self) -> Path:
        """Return the file of the workers' Redis URL, a secret: supervisord's settings hold none."""
        return self.var / "run" / "worker-redis-url"

    @property
    def _fingerprint_file(self) -> Path:
        return self.var / "run" / "settings-fingerprint"

    def _recorded_fingerprint(self) -> str:
        try:
            return self._fingerprint_file.read_text()
        except FileNotFoundError:
            return ""


def _is_told(name: str) -> bool:
    return name.startswith(("PENSTOCK_", "VLLM_", "CUDA_", "HF_", "PYTHONPATH"))
