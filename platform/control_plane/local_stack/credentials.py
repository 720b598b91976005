"""Secrets of a stack on one machine: made once, kept in `var/secrets.env`, readable by us only."""

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpu_workers.config import read_env_file

# What the web process and Celery are given; the rest is for the servers.
OF_THE_CONTROL_PLANE = ("PENSTOCK_SECRET_KEY", "PENSTOCK_API_KEY_PEPPER")
# What a GPU worker is not told: it has a user of its own on the dispatch Redis, and no other door.
NOT_FOR_WORKERS = (
    *OF_THE_CONTROL_PLANE,
    "PENSTOCK_DATABASE_URL",
    "PENSTOCK_REDIS_URL",
    "PENSTOCK_GATEWAY_REDIS_URL",
    "PENSTOCK_DISPATCH_REDIS_URL",
)


def load_or_create(file: Path) -> dict[str, str]:
    """The secrets by variable name. What an older file lacks is made and added."""
    kept = read_env_file(file) if file.exists() else {}
    made = {
        "PENSTOCK_SECRET_KEY": secrets.token_urlsafe(48),
        "PENSTOCK_API_KEY_PEPPER": secrets.token_urlsafe(48),
        "PENSTOCK_POSTGRES_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_POSTGRES_OWNER_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_POSTGRES_WEB_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_DISPATCH_REDIS_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_GATEWAY_REDIS_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_WORKER_REDIS_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_REDIS_PASSWORD": secrets.token_urlsafe(24),
    }
    complete = made | kept
    if complete != kept:
        write_private(file, complete)
    return complete


def load_or_create_for(file: Path, names: Iterable[str]) -> dict[str, str]:
    """A password for each name: the file's, or a new one that is added to it."""
    kept = read_env_file(file) if file.exists() else {}
    complete = kept | {name: secrets.token_urlsafe(24) for name in names if not kept.get(name)}
    if complete != kept:
        write_private(file, complete)
    return complete


def write_private(file: Path, values: Mapping[str, str]) -> None:
    """KEY=value lines, in a file that only we can read."""
    write_private_text(file, "".join(f"{name}={value}\n" for name, value in values.items()))


def write_private_text(file: Path, text: str) -> None:
    """A file of mode 0600 from its first moment, replaced as a whole."""
    half = file.with_name(f"{file.name}.writing")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as lines:
        lines.write(text)
    half.replace(file)
