"""The roles that Penstock has in PostgreSQL, and the database that they share.

    penstock_owner      owns the tables; only `manage.py migrate` signs in as it
    penstock_web        what web, Celery and the collector sign in as; row-level security binds it
    penstock_operator   nobody signs in as it; `operator_scope` changes to it for a transaction

A role that passes row-level security by nature (superuser, BYPASSRLS) is none of them.
"""

from typing import LiteralString

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tenants.isolation.roles import OPERATOR_ROLE, OWNER_ROLE, WEB_ROLE


def prepare_database(admin_url: str, name: str, *, owner_password: str, web_password: str) -> None:
    """Make roles and database where they are missing, and set the passwords. `admin_url` signs in
    as a superuser to any database; raises `psycopg.Error`."""
    with psycopg.connect(admin_url, autocommit=True, connect_timeout=2) as admin:
        _ensure_role(admin, OPERATOR_ROLE, None)
        _ensure_role(admin, WEB_ROLE, web_password)
        _ensure_role(admin, OWNER_ROLE, owner_password)
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
