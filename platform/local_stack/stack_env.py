"""`var/stack.env`: the control plane settings of `make up`, so that manage.py has them too.

They are used only if the environment has none at all: one that sets any of them, even in part, is
never mixed with these.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

from control_plane.env import Settings
from control_plane.private_files import write_private

from gpu_workers.config import read_env_file
from tenants.management import UNREACHABLE

NAME = "stack.env"
VARIABLES = tuple(f"PENSTOCK_{field.name.upper()}" for field in fields(Settings))
SETTINGS_MODULE = "control_plane.settings"
_SERVERS = {
    "PENSTOCK_DATABASE_URL": "PostgreSQL",
    "PENSTOCK_DISPATCH_REDIS_URL": "dispatch Redis",
    "PENSTOCK_REDIS_URL": "Redis",
}
_SCHEMES = ("postgresql", "redis")
_CONNECT_SECONDS = 1.0


def write(file: Path, environ: Mapping[str, str], owner_database_url: str) -> None:
    """Write the control plane's settings in `environ`, and the URL of `migrate`, to `file`."""
    told = {**environ, "PENSTOCK_OWNER_DATABASE_URL": owner_database_url}
    write_private(file, {name: told[name] for name in VARIABLES if told.get(name)})


@contextmanager
def local_stack(root: Path, *, is_told: bool = True) -> Iterator[None]:
    """Run the block with the settings of the checkout's stack, unless the environment has some.

    Say so on standard error if it `is_told`, and exit with a message if the block fails while a
    server of the stack is down.
    """
    file = root / "var" / NAME
    is_for_checks = os.environ.get("DJANGO_SETTINGS_MODULE", SETTINGS_MODULE) != SETTINGS_MODULE
    if is_for_checks or has_settings(os.environ) or not file.exists():
        yield
        return
    try:
        os.environ |= read_env_file(file)
    except PermissionError:
        sys.exit(f"{file} belongs to another user: run as the one who ran `make up`.")
    hint = ""
    if servers_down(os.environ):
        hint = " It is not running: start it with `make up`."
        # Would say it again with each of its tries.
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    if is_told:
        sys.stderr.write(f"Using the local stack's settings ({file.relative_to(root)}).{hint}\n")
    try:
        yield
    except Exception:
        if not (down := servers_down(os.environ)):
            raise
        sys.stderr.write(
            f"The local stack's {down[0]} is not reachable: start it with `make up`.\n"
        )
        sys.exit(UNREACHABLE)


def has_settings(environ: Mapping[str, str]) -> bool:
    """Return whether an environment has any setting of the control plane."""
    names = (*VARIABLES, *(f"{name}_FILE" for name in VARIABLES))
    return any(environ.get(name) for name in names)


def servers_down(environ: Mapping[str, str]) -> list[str]:
    """Return which servers of the settings accept no connection, as `PostgreSQL at host:port`."""
    down = []
    for variable, name in _SERVERS.items():
        place = urlsplit(environ[variable])
        if place.scheme not in _SCHEMES or not place.hostname or not place.port:
            continue
        try:
            socket.create_connection((place.hostname, place.port), _CONNECT_SECONDS).close()
        except OSError:
            down.append(f"{name} at {place.hostname}:{place.port}")
    return down
