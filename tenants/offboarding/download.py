"""A tenant's export as a download of any size, for its own people: read from the database as fast
as they take it, in a transaction that sees no other tenant."""

import asyncio
import hashlib
import json
import uuid
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from contextvars import copy_context
from typing import Final

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, connections

from tenants.audit.log import record
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb
from tenants.isolation.scoping import tenant_scope
from tenants.models import Tenant
from tenants.offboarding.export import tenant_records

PART_BYTES: Final = 64 * 1024
# Who takes nothing for so long holds a transaction for nothing: PostgreSQL ends it.
STALL_SECONDS: Final = 60
# Each holds a database connection of this process, which has ten, for as long as it is read.
AT_ONCE: Final = 3
LONGEST_SECONDS: Final = 1800

_slots = asyncio.Semaphore(AT_ONCE)


def begin_export(tenant: Tenant) -> None:
    """Put into the tenant's log that all its data is about to leave; within its scope, and to be
    committed before `export_parts` yields any. Raises `Conflict` while another export runs."""
    _lock(tenant.id)
    record(Verb.EXPORTED, tenant, tenant_id=tenant.id)


async def export_parts(tenant_id: uuid.UUID) -> AsyncGenerator[bytes]:
    """Yield the records as JSON lines, in parts of about `PART_BYTES`. Of several tenants' exports
    `AT_ONCE` run in a process, others wait for their first part. An error breaks the download off,
    and so does a reader who takes longer than `LONGEST_SECONDS`; one who leaves ends it. Raises
    `Conflict`, `Tenant.DoesNotExist` and `TimeoutError`."""
    async with _slots, aclosing(_read(tenant_id)) as parts:
        async for part in parts:
            yield part


async def _read(tenant_id: uuid.UUID) -> AsyncGenerator[bytes]:
    loop, context = asyncio.get_running_loop(), copy_context()
    # One thread: a transaction belongs to the thread that opened it, and a scope to its context.
    with_database = ThreadPoolExecutor(1, thread_name_prefix="export")
    parts = _parts(tenant_id)

    def next_part() -> bytes:
        return context.run(next, parts, b"")

    until = loop.time() + LONGEST_SECONDS
    try:
        while part := await loop.run_in_executor(with_database, next_part):
            if loop.time() > until:
                raise TimeoutError(f"an export was read for more than {LONGEST_SECONDS} s")
            yield part
    finally:
        with_database.submit(context.run, _end, parts)
        with_database.shutdown(wait=False)


def _parts(tenant_id: uuid.UUID) -> Generator[bytes]:
    part = bytearray()
    with closing(_lines(tenant_id)) as lines:
        for line in lines:
            part += line
            if len(part) >= PART_BYTES:
                yield bytes(part)
                part.clear()
    yield bytes(part)


def _lines(tenant_id: uuid.UUID) -> Generator[bytes]:
    with tenant_scope(tenant_id):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true)",
                [f"{STALL_SECONDS}s"],
            )
        _lock(tenant_id)
        tenant = Tenant.objects.get(id=tenant_id, closed_at=None)
        for row in tenant_records(tenant):
            yield f"{json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False)}\n".encode()


def _end(parts: Generator[bytes]) -> None:
    try:
        parts.close()
    finally:
        connections.close_all()


def _lock(tenant_id: uuid.UUID) -> None:
    """Hold the one export that a tenant may have at a time, until the transaction ends."""
    name = hashlib.sha256(f"export {tenant_id}".encode()).digest()
    with connection.cursor() as cursor:
        number = int.from_bytes(name[:8], signed=True)
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        if not cursor.fetchone()[0]:
            raise Conflict("An export of this organisation is running; wait until it has ended.")
