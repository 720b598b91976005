"""Loopback ports: which are free, and which process holds the others."""

import socket
from collections.abc import Iterable
from pathlib import Path

from local_stack.programs import Program
from local_stack.services import LOOPBACK, ServiceError

PROC = Path("/proc")


class PortTaken(ServiceError):
    """A program's port is another's; `holder` is who listens on it, empty if that is not seen."""

    def __init__(self, program: Program, port: int, holder: str) -> None:
        taken = f"taken by {holder}" if holder else "taken"
        super().__init__(
            f"Port {port}, which {program.name} needs, is {taken}: stop that, or choose another "
            f"port, e.g. {program.port_variable}={port + 1} make up."
        )
        self.program = program
        self.holder = holder


def check_free(programs: Iterable[Program]) -> None:
    """Raise `PortTaken` if a program's port is not free."""
    for program in programs:
        if program.port is None or is_free(program.port):
            continue
        raise PortTaken(program, program.port, holder_of(program.port))


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def holder_of(port: int, proc: Path = PROC) -> str:
    """Return who listens on a port, as `name (process id)`; empty if that cannot be seen."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            rows = (proc / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for columns in map(str.split, rows):
            is_listening = columns[3] == "0A"
            if is_listening and int(columns[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{columns[9]}]")
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        try:
            if any(str(link.readlink()) in inodes for link in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
        except OSError:
            continue
    return ""
