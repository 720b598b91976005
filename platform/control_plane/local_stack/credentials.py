"""Secrets of a stack on one machine: made once, kept in `var/secrets.env`, readable by us only."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from gpu_workers.config import read_env_file

# What the web process and Celery are given; the rest is for the servers.
OF_THE_CONTROL_PLANE = ("PENSTOCK_SECRET_KEY", "PENSTOCK_API_KEY_PEPPER")


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
        "PENSTOCK_REDIS_PASSWORD": secrets.token_urlsafe(24),
    }
    complete = made | kept
    if complete != kept:
        write_private(file, complete)
    return complete


def write_private(file: Path, values: Mapping[str, str]) -> None:
    """KEY=value lines in a file of mode 0600 from its first moment, replaced as a whole."""
    half = file.with_name(f"{file.name}.writing")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in values.items())
    half.replace(file)
