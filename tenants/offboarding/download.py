"""A tenant's export as a download of any size, for its own people: read from the database in one
transaction that sees no other tenant, as fast as the database gives it, and from a file on disk as
fast as somebody takes it."""

import asyncio
import errno
import hashlib
import json
import os
import tempfile
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from typing import IO, Final

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, connections

from tenants.audit.log import record
from tenants.errors import Conflict
from tenants.exports import BoundedFile, bounded
from tenants.isolation.audit_actor import Verb
from tenants.isolation.scoping import tenant_scope
from tenants.models import Tenant
from tenants.offboarding.export import tenant_records
from tenants.permissions import Permission

PART_BYTES: Final = 64 * 1024
# Each holds a database connection of this process, which has ten, while it is read from there.
AT_ONCE: Final = 3
LONGEST_SECONDS: Final = 1800
# Of the disk that downloads lie on: others need it too.
LEFT_BYTES: Final = 1024**3
_INCOMPLETE: Final = {
    "kind": "incomplete",
    "reason": f"This file took longer than {LONGEST_SECONDS} s to be read.",
}

_slots = asyncio.Semaphore(AT_ONCE)


def begin_export(tenant: Tenant, permissions: frozenset[Permission]) -> BoundedFile:
    """Return all that is the tenant's, and that one with these permissions may see, as JSON lines,
    to be read once this is committed: that they leave is in its log then. Within its scope. Raises
    `TooManyExports`, and `Conflict` while another is read from the database."""
    file = bounded(
        tenant.id,
        export_parts(tenant.id, permissions),
        seconds=LONGEST_SECONDS,
        last_line=f"{json.dumps(_INCOMPLETE)}\n".encode(),
    )
    try:
        _lock(tenant.id)
        record(Verb.EXPORTED, tenant, tenant_id=tenant.id)
    except BaseException:
        file.close()
        raise
    return file


async def export_parts(
    tenant_id: uuid.UUID, permissions: frozenset[Permission] | None = None
) -> AsyncGenerator[bytes]:
    """Yield the records, as `tenant_records` does, in parts of about `PART_BYTES`. Of several
    tenants' exports `AT_ONCE` are read from the database at a time, others wait for their first
    part; one whose reader has left is read no further. An error breaks the download off. Raises
    `Conflict`, `Tenant.DoesNotExist`, and `OSError` where the disk has no room."""
    has_left = threading.Event()
    # Under no name: a process that is killed leaves nothing of it.
    with tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR) as file:
        news = asyncio.Event()
        filling = asyncio.create_task(
            _fill(_parts(tenant_id, permissions), file.fileno(), has_left, news)
        )
        try:
            position = 0
            while True:
                is_whole = filling.done()
                news.clear()
                part = await asyncio.to_thread(os.pread, file.fileno(), PART_BYTES, position)
                # Whole lines, unless one is longer than that.
                part = part[: part.rfind(b"\n") + 1] or part
                position += len(part)
                if part:
                    yield part
                elif is_whole:
                    break
                else:
                    await news.wait()
            await filling
        finally:
            has_left.set()
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)


async def _fill(
    parts: Generator[bytes], descriptor: int, has_left: threading.Event, news: asyncio.Event
) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with _slots:
            # Of its own: the reader closes theirs whenever they leave.
            file = os.fdopen(os.dup(descriptor), "wb")
            await asyncio.to_thread(
                _write, parts, file, has_left, lambda: loop.call_soon_threadsafe(news.set)
            )
    finally:
        news.set()


def _write(
    parts: Generator[bytes], file: IO[bytes], has_left: threading.Event, tell: Callable[[], object]
) -> None:
    try:
        with file, closing(parts):
            for part in parts:
                if has_left.is_set():
                    return
                _check_room(file.fileno())
                file.write(part)
                file.flush()
                tell()
    finally:
        connections.close_all()


def _check_room(descriptor: int) -> None:
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize < LEFT_BYTES:
        raise OSError(errno.ENOSPC, "an export was broken off to leave the disk some room")


def _parts(tenant_id: uuid.UUID, permissions: frozenset[Permission] | None) -> Generator[bytes]:
    part = bytearray()
    with closing(_lines(tenant_id, permissions)) as lines:
        for line in lines:
            part += line
            if len(part) >= PART_BYTES:
                yield bytes(part)
                part.clear()
    yield bytes(part)


def _lines(tenant_id: uuid.UUID, permissions: frozenset[Permission] | None) -> Generator[bytes]:
    with tenant_scope(tenant_id):
        _lock(tenant_id)
        tenant = Tenant.objects.get(id=tenant_id, closed_at=None)
        for row in tenant_records(tenant, permissions):
            yield f"{json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False)}\n".encode()


def _lock(tenant_id: uuid.UUID) -> None:
    """Hold the one export that is read for a tenant at a time, until the transaction ends."""
    name = hashlib.sha256(f"export {tenant_id}".encode()).digest()
    with connection.cursor() as cursor:
        number = int.from_bytes(name[:8], signed=True)
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        if not cursor.fetchone()[0]:
            raise Conflict("An export of this organisation is running; wait until it has ended.")
