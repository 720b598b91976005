"""Loopback ports: which are free, and which process holds the others."""

import socket
from collections.abc import Iterable
from pathlib import Path

from local_stack.programs import Program
from local_stack.services import LOOPBACK, ServiceError

PROC = Path("/proc")


def check_free(programs: Iterable[Program]) -> None:
    """Raise `ServiceError` if a program's port is taken, with who holds it and what to set."""
    for program in programs:
        if program.port is None or is_free(program.port):
            continue
        holder = holder_of(program.port)
        raise ServiceError(
            f"Port {program.port}, which {program.name} needs, is taken"
            f"{f' by {holder}' if holder else ''}: stop that, or choose another port, "
            f"e.g. {program.port_variable}={program.port + 1} make up."
        )


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
