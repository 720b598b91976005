"""supervisord (supervisord.org) as the one supervisor: its configuration, start and commands.

All commands go over a UNIX socket that only we may open. Programs inherit supervisord's own
environment, so the configuration file holds no secret.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xmlrpc.client import Fault, ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from local_stack.programs import Program
from local_stack.services import ServiceError, guarded

SOCKET_PATH_LIMIT = 100  # sun_path holds 108 bytes, and supervisord adds its process id for a while
RETRIES = 1_000_000  # it never gives up; each retry waits a second longer than the last
_GONE = (OSError, ConnectionError)


@dataclass(frozen=True, kw_only=True)
class ProgramState:
    """supervisord's state of a program: RUNNING, STARTING, BACKOFF, STOPPED, EXITED, FATAL."""

    name: str
    state: str
    pid: int
    description: str

    @property
    def is_up(self) -> bool:
        return self.state == "RUNNING"

    @property
    def is_down(self) -> bool:
        return self.state in ("STOPPED", "EXITED", "FATAL")


class Supervisor:
    """One supervisord, living in `run_folder` and logging to `log_folder`."""

    def __init__(self, root: Path, run_folder: Path, log_folder: Path) -> None:
        self._root = root
        self._run = run_folder
        self._log = log_folder
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def config_file(self) -> Path:
        return self._run / "supervisord.conf"

    def start(
        self, programs: Iterable[Program], environ: Mapping[str, str], *, dies_with_us: bool = False
    ) -> None:
        """Write the configuration and start supervisord with no program running yet.

        Raises `ServiceError` if it does not start.
        """
        self.config_file.write_text(self.render(programs))
        command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(self.config_file)]
        output = self._log / "supervisord.out"
        with output.open("wb") as log:
            if dies_with_us:
                self._child = subprocess.Popen(
                    guarded([*command, "--nodaemon"]),
                    cwd=self._root,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
            else:
                # It goes into the background by itself, in a session of its own.
                subprocess.run(
                    command,
                    cwd=self._root,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=False,
                )
        deadline = time.monotonic() + 15
        while not self.is_running():
            if time.monotonic() > deadline:
                said = output.read_text(errors="replace").strip().splitlines() or [
                    "no reason given"
                ]
                raise ServiceError(f"supervisord did not start: {said[-1]}; see {self._log}.")
            time.sleep(0.05)

    def is_running(self) -> bool:
        """Return whether supervisord answers."""
        try:
            self._call("getState")
        except _GONE:
            return False
        return True

    def states(self) -> dict[str, ProgramState]:
        """Return the states by program name; empty if supervisord does not run."""
        try:
            rows = cast("list[dict[str, Any]]", self._call("getAllProcessInfo"))
        except _GONE:
            return {}
        return {
            row["name"]: ProgramState(
                name=row["name"],
                state=row["statename"],
                pid=row["pid"],
                description=row["description"],
            )
            for row in rows
        }

    def start_programs(self, programs: Iterable[Program]) -> None:
        """Start those that do not run, in order. Raises `ServiceError` if one cannot start."""
        states = self.states()
        for program in programs:
            if program.name in states and states[program.name].is_down:
                try:
                    self._call("startProcess", program.name, False)
                except Fault as fault:
                    raise ServiceError(
                        f"{program.name} could not be started: {fault.faultString}."
                    ) from fault

    def stop_programs(self, names: Iterable[str], timeout_seconds: float) -> None:
        """Stop all at once; return when they are down or the time is over."""
        wanted = set(names)
        for name, state in self.states().items():
            if name in wanted and not state.is_down:
                try:
                    self._call("stopProcess", name, False)
                except Fault:
                    continue  # it ended by itself meanwhile
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if all(state.is_down for name, state in self.states().items() if name in wanted):
                return
            time.sleep(0.1)

    def shut_down(self, timeout_seconds: float = 20.0) -> None:
        """End supervisord itself; do nothing if it does not run."""
        try:
            self._call("shutdown")
        except (*_GONE, Fault):
            return
        deadline = time.monotonic() + timeout_seconds
        while self.is_running() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._child is not None:
            self._child.wait(timeout=timeout_seconds)

    def render(self, programs: Iterable[Program]) -> str:
        """Return the configuration file's text."""
        sections = [
            _section("unix_http_server", {"file": str(self._socket()), "chmod": "0700"}),
            _section(
                "supervisord",
                {
                    "identifier": "penstock",
                    "directory": str(self._root),
                    "pidfile": str(self._run / "supervisord.pid"),
                    "logfile": str(self._log / "supervisord.log"),
                    "logfile_maxbytes": "5MB",
                    "logfile_backups": "1",
                    "childlogdir": str(self._log),
                    "umask": "077",
                    "minfds": "4096",
                },
            ),
            _section(
                "rpcinterface:supervisor",
                {
                    "supervisor.rpcinterface_factory": (
                        "supervisor.rpcinterface:make_main_rpcinterface"
                    )
                },
            ),
        ]
        sections += [self._program_section(program) for program in programs]
        return "\n".join(sections)

    def _program_section(self, program: Program) -> str:
        options = {
            "command": " ".join(_quote(word) for word in program.command),
            "autostart": "false",
            "autorestart": "unexpected" if program.may_leave else "true",
            "exitcodes": "0",
            "startsecs": "1",
            "startretries": str(RETRIES),
            "stopsignal": program.stop_signal,
            "stopwaitsecs": str(program.stop_wait_seconds),
            "stopasgroup": "true" if program.stop_as_group else "false",
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": str(self._log / f"{program.name}.log"),
            "stdout_logfile_maxbytes": "20MB",
            "stdout_logfile_backups": "2",
        }
        if program.environ:
            pairs = [f'{name}="{value}"' for name, value in program.environ.items()]
            options["environment"] = ",".join(pairs)
        return _section(f"program:{program.name}", options)

    def _socket(self) -> Path:
        """Return a path in our own folder, or in a short one recorded there if that is too long."""
        path = self._run / "supervisor.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
            return path
        record = self._run / "socket-folder"
        folder = Path(record.read_text()) if record.exists() else None
        if folder is None or not folder.is_dir():
            folder = Path(tempfile.mkdtemp(prefix="penstock-", dir="/tmp"))
            record.write_text(str(folder))
        return folder / "supervisor.sock"

    def _call(self, method: str, *arguments: Any) -> Any:
        transport = SupervisorTransport(None, None, f"unix://{self._socket()}")
        with ServerProxy("http://127.0.0.1", transport=transport) as proxy:
            return getattr(proxy.supervisor, method)(*arguments)


def _section(name: str, options: Mapping[str, str]) -> str:
    lines = [f"{key} = {value.replace('%', '%%')}" for key, value in options.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _quote(word: str) -> str:
    """Quote a word: supervisord reads `;` after a space as a comment and splits like sh."""
    plain = word and all(letter.isalnum() or letter in "-_./:=@," for letter in word)
    return word if plain else '"{}"'.format(word.replace("\\", "\\\\").replace('"', '\\"'))
