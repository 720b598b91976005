"""Databases of an earlier version, to see what migrations make of the rows in them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from control_plane.database_roles import prepare_database
from control_plane.local_stack.services import POSTGRES_NAME
from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor
from psycopg.conninfo import make_conninfo

from tenants.isolation.roles import OPERATOR_ROLE
from tests.support.servers import TestServers

_AS_OPERATOR = f"SET LOCAL ROLE {OPERATOR_ROLE}"

# What a tier of every version has, and must have above zero.
_COUNTS = (
    "weight",
    "ttft_target_ms",
    "max_queue_seconds",
    "requests_per_minute",
    "max_concurrent_requests",
    "default_max_output_tokens",
    "max_output_tokens",
)

Version = Sequence[tuple[str, str]]


class OldDatabase:
    """`owner` is a connection of the owner of its tables; Django's alias of it is `name`."""

    def __init__(self, name: str, owner: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.name = name
        self.owner = owner

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """As an operator sees them: their owner is behind the walls."""
        with self.owner.transaction():
            self.owner.execute(_AS_OPERATOR.encode())
            return self.owner.execute(query.encode()).fetchall()

    def add(self, version: Version, label: str, **fields: Any) -> Any:
        """A record with the columns of then."""
        model = self._executor().loader.project_state(list(version)).apps.get_model(label)
        with transaction.atomic(using=self.name), connections[self.name].cursor() as cursor:
            cursor.execute(_AS_OPERATOR)
            return model.objects.using(self.name).create(**fields)

    def add_tier(self, version: Version, **fields: Any) -> Any:
        counts = dict.fromkeys(_COUNTS, 1)
        return self.add(version, "tenants.Tier", priority=0, **counts, **fields)

    def migrate(self, version: Version) -> None:
        self._executor().migrate(list(version))

    def migrate_to_today(self) -> None:
        self.migrate(self._executor().loader.graph.leaf_nodes())

    def _executor(self) -> MigrationExecutor:
        return MigrationExecutor(connections[self.name])


@contextmanager
def old_database(servers: TestServers, name: str, version: Version) -> Iterator[OldDatabase]:
    """One beside the tests' own, without rows; gone in the end."""
    servers.start_postgres()
    postgres = servers.postgres
    superuser = {"user": POSTGRES_NAME, "password": postgres.password, "dbname": "postgres"}
    admin_url = make_conninfo(postgres.owner_url, **superuser)
    passwords = {
        "owner_password": postgres.owner_password,
        "web_password": postgres.web_password,
    }
    prepare_database(admin_url, name, **passwords)
    connections.databases[name] = {**connections.databases["owner"], "NAME": name}
    try:
        owner_url = make_conninfo(postgres.owner_url, dbname=name)
        with psycopg.connect(owner_url, autocommit=True) as owner:
            database = OldDatabase(name, owner)
            database.migrate(version)
            yield database
    finally:
        connections[name].close()
        del connections[name]
        del connections.databases[name]
        with psycopg.connect(admin_url, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name}".encode())
