"""Secrets of a stack on one machine: made once, kept in `var/secrets.env`, readable by us only."""

import os
import secrets
from pathlib import Path

from gpu_workers.config import read_env_file
from tenants import api_keys

OPERATOR_EMAIL = "operator@penstock.example"


def load_or_create(file: Path) -> dict[str, str]:
    """The secrets by variable name. What an older file lacks is made and added."""
    kept = read_env_file(file) if file.exists() else {}
    made = {
        "PENSTOCK_SECRET_KEY": secrets.token_urlsafe(48),
        "PENSTOCK_API_KEY_PEPPER": secrets.token_urlsafe(48),
        "PENSTOCK_POSTGRES_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_DISPATCH_REDIS_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_REDIS_PASSWORD": secrets.token_urlsafe(24),
        "PENSTOCK_OPERATOR_EMAIL": OPERATOR_EMAIL,
        "PENSTOCK_OPERATOR_PASSWORD": secrets.token_urlsafe(15),
        "PENSTOCK_ACME_KEY": api_keys.generate(),
        "PENSTOCK_GLOBEX_KEY": api_keys.generate(),
    }
    complete = made | kept
    if complete != kept:
        write_private(file, complete)
    return complete


def write_private(file: Path, values: dict[str, str]) -> None:
    """KEY=value lines in a file of mode 0600 from its first moment, replaced as a whole."""
    half = file.with_name(f"{file.name}.writing")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in values.items())
    half.replace(file)
