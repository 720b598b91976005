"""manage.py redis_acl --pool NAME ... --worker-passwords FILE > users.acl"""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane import redis_acl
from control_plane.private_files import load_or_create_passwords
from control_plane.redis_acl import RedisUser


class Command(BaseCommand):
    help = (
        "Print the ACL file of the dispatch Redis: the control plane's user, the gateway's, and "
        "one for the workers of each pool. Passwords stand in it as digests; the first two are "
        "those of PENSTOCK_DISPATCH_REDIS_URL and PENSTOCK_GATEWAY_REDIS_URL."
    )
    # Run before any server is up.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--pool", action="append", default=[], help="a pool that has workers")
        parser.add_argument(
            "--worker-passwords",
            type=Path,
            metavar="FILE",
            help="lines of POOL=password; missing pools are added with a new password",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        pools: list[str] = options["pool"]
        passwords = _passwords_of_workers(pools, options["worker_passwords"])
        url, gateway_url = settings.PENSTOCK_DISPATCH_REDIS_URL, settings.ENV.gateway_redis_url
        users = [
            redis_acl.control_plane(
                _password(url, "PENSTOCK_DISPATCH_REDIS_URL", redis_acl.CONTROL_PLANE)
            ),
            redis_acl.gateway(
                _password(gateway_url, "PENSTOCK_GATEWAY_REDIS_URL", redis_acl.GATEWAY)
            ),
            *(_worker(pool, passwords[pool]) for pool in pools),
        ]
        self.stdout.write(redis_acl.acl_file(users), ending="")


def _passwords_of_workers(pools: list[str], file: Path | None) -> dict[str, str]:
    if not pools:
        return {}
    if file is None:
        raise CommandError("--pool needs --worker-passwords, the file of its workers' password.")
    try:
        return load_or_create_passwords(file, pools)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"--worker-passwords: {file} cannot be read or written: {error}"
        ) from None


def _worker(pool: str, password: str) -> RedisUser:
    try:
        return redis_acl.worker(pool, password)
    except ValueError as error:
        raise CommandError(f"--pool: {error}") from None


def _password(url: str, variable: str, user: str) -> str:
    parts = urlsplit(url)
    if unquote(parts.username or "") != user or not parts.password:
        raise CommandError(
            f"{variable} must name its user and password: redis://{user}:<password>@host:port/0"
        )
    return unquote(parts.password)
