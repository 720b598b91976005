"""The roles that Penstock has in PostgreSQL, and the database that they share.

    penstock_owner      owns the tables; only `manage.py migrate` signs in as it
    penstock_web        what web, Celery and the collector sign in as; row-level security binds it
    penstock_operator   nobody signs in as it; `operator_scope` changes to it for a transaction

A role that passes row-level security by nature (superuser, BYPASSRLS) is none of them. What signs
in as `penstock_web` has no more time than a page may take, unless it says that it works in the
background: so no request holds a connection, or the rows that it has locked, for long.
"""

import os
from typing import Final, LiteralString

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tenants.isolation.roles import OPERATOR_ROLE, OWNER_ROLE, WEB_ROLE

# By the name of PostgreSQL's setting.
_LIMITS_OF_WEB: Final = {
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "60s",
}
# For libpq, which takes them before those of the role.
_LIMITS_OF_BACKGROUND: Final = "-c statement_timeout=0 -c idle_in_transaction_session_timeout=10min"


def work_in_background() -> None:
    """Give this process, and those that it forks, the time that tasks and commands take. Call it
    before anything connects."""
    os.environ.setdefault("PGOPTIONS", _LIMITS_OF_BACKGROUND)


def prepare_database(admin_url: str, name: str, *, owner_password: str, web_password: str) -> None:
    """Make roles and database where they are missing, and set the passwords. `admin_url` signs in
    as a superuser to any database; raises `psycopg.Error`."""
    with psycopg.connect(admin_url, autocommit=True, connect_timeout=2) as admin:
        _ensure_role(admin, OPERATOR_ROLE, None)
        _ensure_role(admin, WEB_ROLE, web_password)
        _ensure_role(admin, OWNER_ROLE, owner_password)
        for setting, value in _LIMITS_OF_WEB.items():
            admin.execute(_sql("ALTER ROLE {} SET {} = ", WEB_ROLE, setting) + sql.Literal(value))
        # Nobody inherits: who wants another role's rights becomes it with SET ROLE. The owner
        # does so in data migrations: under FORCE it would touch no row itself.
        for role, members in ((OPERATOR_ROLE, (WEB_ROLE, OWNER_ROLE)), (WEB_ROLE, (OWNER_ROLE,))):
            for member in members:
                admin.execute(_sql("GRANT {} TO {}", role, member))
        found = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if found is None:
            admin.execute(_sql("CREATE DATABASE {} OWNER {}", name, OWNER_ROLE))
    here = make_conninfo(admin_url, dbname=name)
    with psycopg.connect(here, autocommit=True, connect_timeout=2) as admin:
        admin.execute(_sql("ALTER SCHEMA public OWNER TO {}", OWNER_ROLE))


def _ensure_role(admin: Connection[TupleRow], role: str, password: str | None) -> None:
    found = admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone()
    if found is None:
        admin.execute(_sql("CREATE ROLE {} NOSUPERUSER NOCREATEDB NOINHERIT", role))
    if password is not None:
        admin.execute(_sql("ALTER ROLE {} LOGIN PASSWORD ", role) + sql.Literal(password))


def _sql(template: LiteralString, *names: str) -> sql.Composed:
    return sql.SQL(template).format(*map(sql.Identifier, names))
