"""Secrets of a stack on one machine: made once, kept in `var/secrets.env`, readable by us only."""

import secrets
from pathlib import Path

from control_plane.private_files import write_private

from gpu_workers.config import read_env_file

# What the web process and Celery are given; the rest is for the servers.
OF_THE_CONTROL_PLANE = (
    "PENSTOCK_SECRET_KEY",
    "PENSTOCK_API_KEY_PEPPER",
    "PENSTOCK_METRICS_TOKEN",
)
# What a GPU worker is not told: it has a user of its own on the dispatch Redis, and no other door.
NOT_FOR_WORKERS = (
    *OF_THE_CONTROL_PLANE,
    "PENSTOCK_DATABASE_URL",
    "PENSTOCK_REDIS_URL",
    "PENSTOCK_GATEWAY_REDIS_URL",
    "PENSTOCK_DISPATCH_REDIS_URL",
    "PENSTOCK_EMAIL_URL",
    "PENSTOCK_BLOB_STORE_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)


def load_or_create(file: Path) -> dict[str, str]:
    """Return the secrets by variable name; create those that the file lacks and add them to it."""
    kept = read_env_file(file) if file.exists() else {}
    made = {
        "PENSTOCK_SECRET_KEY": secrets.token_urlsafe(48),
        "PENSTOCK_API_KEY_PEPPER": secrets.token_urlsafe(48),
        "PENSTOCK_METRICS_TOKEN": secrets.token_urlsafe(32),
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
