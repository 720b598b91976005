"""Which of the three servers a stack starts itself, and which were given to it by URL."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from control_plane import redis_acl

from local_stack.postgres_server import PostgresServer, find_postgres
from local_stack.programs import (
    DISPATCH_REDIS,
    POSTGRES,
    REDIS,
    Program,
    server_program,
)
from local_stack.redis_server import RedisServer, find_redis
from local_stack.services import LOOPBACK, unprivileged_user
from local_stack.settings import Ports, StackSettings

URL_VARIABLES = {
    DISPATCH_REDIS: "PENSTOCK_DISPATCH_REDIS_URL",
    REDIS: "PENSTOCK_REDIS_URL",
    POSTGRES: "PENSTOCK_DATABASE_URL",
}


class OwnServers:
    """The servers of one stack. They lie in `folder`, with the passwords of `secrets`."""

    def __init__(self, settings: StackSettings, secrets: Mapping[str, str], folder: Path) -> None:
        self._settings = settings
        self._secrets = secrets
        self._folder = folder
        self._given = {
            DISPATCH_REDIS: settings.dispatch_redis_url,
            REDIS: settings.redis_url,
            POSTGRES: settings.database_url,
        }

    @cached_property
    def by_name(self) -> dict[str, PostgresServer | RedisServer]:
        """Return the servers that we start, by name."""
        return {
            name: self._postgres() if name == POSTGRES else self._redis(name)
            for name, url in self._given.items()
            if url is None or self._is_ours(name, url)
        }

    def urls(self) -> dict[str, str]:
        """Return the servers' URLs by variable: ours, or the one that was given."""
        urls = {
            variable: self.by_name[name].url if name in self.by_name else str(self._given[name])
            for name, variable in URL_VARIABLES.items()
        }
        if (dispatch := self._own_dispatch_redis()) is not None:
            urls["PENSTOCK_GATEWAY_REDIS_URL"] = dispatch.url_of(redis_acl.GATEWAY)
        return urls

    def worker_redis_url(self) -> str:
        """Return our workers' URL of the dispatch Redis, as their pool's user if it is ours."""
        dispatch = self._own_dispatch_redis()
        if dispatch is None:
            return str(self._given[DISPATCH_REDIS])
        return dispatch.url_of(redis_acl.worker_name(self._settings.pool))

    def rules(self) -> list[str]:
        """Return the ACL rules that our dispatch Redis is started with."""
        dispatch = self._own_dispatch_redis()
        return [] if dispatch is None else redis_acl.acl_file(dispatch.users).splitlines()

    def owner_database_url(self) -> str | None:
        """Return the URL that `migrate` signs in with: ours, or the given one."""
        server = self.by_name.get(POSTGRES)
        if isinstance(server, PostgresServer):
            return server.owner_url
        return self._settings.owner_database_url

    def programs(self) -> list[Program]:
        """Return our servers as programs of supervisord."""
        return [
            server_program(name, server, Ports.variable(_setting(name)))
            for name, server in self.by_name.items()
        ]

    def wait(self, kind: type[PostgresServer] | type[RedisServer]) -> None:
        """Wait until all of a kind answer. Raises `ServiceError` if one does not in time."""
        for server in self.by_name.values():
            if isinstance(server, kind):
                server.wait()

    def _is_ours(self, name: str, url: str) -> bool:
        """Return whether a URL names our own server, as demo.env does, not one to use instead."""
        place = urlsplit(url)
        is_here = (place.hostname, place.port) == (LOOPBACK, self._port(name))
        password = "postgres_web" if name == POSTGRES else name
        return is_here and unquote(place.password or "") == self._password(password)

    def _postgres(self) -> PostgresServer:
        user = unprivileged_user()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711 if user else 0o700)
        return PostgresServer(
            binaries=find_postgres(self._folder, user),
            folder=self._folder / POSTGRES,
            port=self._port(POSTGRES),
            password=self._password(POSTGRES),
            owner_password=self._password("postgres_owner"),
            web_password=self._password("postgres_web"),
            user=user,
        )

    def _own_dispatch_redis(self) -> RedisServer | None:
        server = self.by_name.get(DISPATCH_REDIS)
        return server if isinstance(server, RedisServer) else None

    def _redis(self, name: str) -> RedisServer:
        return RedisServer(
            binary=find_redis(),
            folder=self._folder / name,
            port=self._port(name),
            password=self._password(name),
            users=self._dispatch_users() if name == DISPATCH_REDIS else (),
        )

    def _dispatch_users(self) -> tuple[redis_acl.RedisUser, ...]:
        """Return the users; workers started by hand sign in as the first one, by demo.env."""
        return (
            redis_acl.control_plane(self._password(DISPATCH_REDIS)),
            redis_acl.gateway(self._password("gateway_redis")),
            redis_acl.worker(self._settings.pool, self._password("worker_redis")),
        )

    def _port(self, name: str) -> int:
        return int(getattr(self._settings.ports, _setting(name)))

    def _password(self, name: str) -> str:
        return self._secrets[f"PENSTOCK_{_setting(name).upper()}_PASSWORD"]


def _setting(name: str) -> str:
    return name.replace("-", "_")
