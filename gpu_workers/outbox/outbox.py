"""Usage that a worker has to deliver, on its own disk until PostgreSQL has it (docs/adr/0013).

A row is provisional until `finish` has decided on it. Then it is settled, and deleted when its
receipt has come.
"""

import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_workers.outbox.disk import OutboxHeld, Run, Writer, connect, lock

# A predecessor that was killed may take its children with it a little later.
LOCK_TIMEOUT_SECONDS: Final = 5.0
FREE_FOLDERS: Final = 1000
# Room that is asked for before the disk is trusted again: some rows' worth.
PROBE_BYTES: Final = 64 * 1024

_SELECT: Final = "SELECT seq, field, record, gateway_id, resumed, stream_id FROM entries"


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One row. `field` is the field of the stream entry that carries `record`; `resumed` counts the
    tokens that its attempt resumed from; `stream_id` is '' until it is in the stream. A provisional
    record is always a `UsageEntry`: its attempt ends its request or, with the field `waste`, never
    will."""

    seq: int
    field: str
    record: bytes
    gateway_id: str
    resumed: int
    stream_id: str


class Outbox:
    """A worker's outbox; make one with `open`, and use it on the event loop it was opened on."""

    def __init__(self, writer: Writer, outbox_id: str, folder: Path) -> None:
        self.outbox_id = outbox_id
        self.folder = folder
        self._writer = writer
        self._in_flight: set[int] = set()

    @classmethod
    def open(cls, folder: Path, *, pool: str) -> "Outbox":
        """Open the outbox in a folder, which is made if need be. Raises `OutboxHeld`,
        `OutboxOfOtherPool` or `OutboxUnusable`."""
        return cls._open(folder, lock(folder, LOCK_TIMEOUT_SECONDS), pool)

    @classmethod
    def open_free(cls, root: Path, *, pool: str) -> "Outbox":
        """Open the first folder of the pool under `root` that no other process holds, and with it
        what a dead worker left behind. Raises as `open` does."""
        for number in range(FREE_FOLDERS):
            folder = root / f"{pool.replace('/', '%2F')}-{number}"
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = lock(folder, 0)
            except OutboxHeld:
                continue
            return cls._open(folder, descriptor, pool)
        raise OutboxHeld(
            f"Other processes hold all {FREE_FOLDERS} outboxes of {pool} under {root}: end some of "
            "them, or name a folder of its own in PENSTOCK_WORKER_OUTBOX."
        )

    @classmethod
    def _open(cls, folder: Path, descriptor: int, pool: str) -> "Outbox":
        try:
            database, outbox_id = connect(folder, pool)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(Writer(database, descriptor, folder), outbox_id, folder)

    @property
    def problem(self) -> str:
        """Return why the disk refuses rows; "" while it accepts them."""
        return self._writer.problem

    def origin(self, seq: int) -> str:
        """Return a row's origin as the stream has it: `<outbox id> <sequence number>`."""
        return f"{self.outbox_id} {seq}"

    async def put(self, field: str, record: bytes, *, gateway_id: str, resumed: int) -> int:
        """Write a provisional row; it is on disk when its number is returned. It is in flight until
        it is marked, replaced or forgotten. Raises `OutboxUnwritable` if the disk refuses."""

        def insert(database: sqlite3.Connection) -> int:
            row = (field, record, gateway_id, resumed)
            cursor = database.execute(
                "INSERT INTO entries (is_settled, field, record, gateway_id, resumed)"
                " VALUES (0, ?, ?, ?, ?)",
                row,
            )
            return int(cursor.lastrowid or 0)

        seq = await self._writer.do(insert)
        self._in_flight.add(seq)
        return seq

    async def put_settled(self, field: str, record: bytes) -> None:
        """Write a row to append to the stream. Raises `OutboxUnwritable` if the disk refuses."""
        statement = "INSERT INTO entries (is_settled, field, record) VALUES (1, ?, ?)"
        await self._writer.do(_executing(statement, [(field, record)]))

    def mark_appended(self, seq: int, stream_id: str) -> None:
        """Settle a row that `finish` has accepted, and appended to the stream."""
        statement = "UPDATE entries SET is_settled = 1, stream_id = ? WHERE seq = ?"
        self._writer.do_later(_executing(statement, [(stream_id, seq)]))
        self._in_flight.discard(seq)

    def replace(self, seq: int, field: str, record: bytes) -> None:
        """Settle a row that `finish` has refused: put this record, for the stream, in its place."""
        statement = (
            "UPDATE entries SET is_settled = 1, stream_id = '', field = ?, record = ? WHERE seq = ?"
        )
        self._writer.do_later(_executing(statement, [(field, record, seq)]))
        self._in_flight.discard(seq)

    def forget(self, seqs: Iterable[int]) -> None:
        """Delete rows that need no delivery, or that PostgreSQL has."""
        rows = [(seq,) for seq in seqs]
        self._writer.do_later(_executing("DELETE FROM entries WHERE seq = ?", rows))
        self._in_flight.difference_update(seq for (seq,) in rows)

    def mark_in_doubt(self, seq: int) -> None:
        """Leave a row to the relay: whether its attempt ended the request is not known."""
        self._in_flight.discard(seq)

    def update_stream_ids(self, stream_ids: Iterable[tuple[int, str]]) -> None:
        """Record the rows' current stream ids, as (number, stream id)."""
        rows = [(stream_id, seq) for seq, stream_id in stream_ids]
        self._writer.do_later(_executing("UPDATE entries SET stream_id = ? WHERE seq = ?", rows))

    async def in_doubt(self) -> list[OutboxEntry]:
        """Return the provisional rows that nobody is finishing: an earlier process left them, or
        they were marked in doubt. Raises `OutboxUnwritable` if the disk fails, as every read
        does."""

        def select(database: sqlite3.Connection) -> list[OutboxEntry]:
            return _entries(database.execute(f"{_SELECT} WHERE NOT is_settled ORDER BY seq"))

        rows = await self._writer.read(select)
        return [row for row in rows if row.seq not in self._in_flight]

    async def settled_after(self, seq: int, limit: int) -> list[tuple[int, str]]:
        """Return the number and stream id of the next `limit` settled rows."""

        def select(database: sqlite3.Connection) -> list[tuple[int, str]]:
            return database.execute(
                "SELECT seq, stream_id FROM entries WHERE is_settled AND seq > ?"
                " ORDER BY seq LIMIT ?",
                (seq, limit),
            ).fetchall()

        return await self._writer.read(select)

    async def entries(self, seqs: Iterable[int]) -> list[OutboxEntry]:
        """Return those of these rows that are still there."""
        asked = list(seqs)

        def select(database: sqlite3.Connection) -> list[OutboxEntry]:
            return [
                entry
                for seq in asked
                for entry in _entries(database.execute(f"{_SELECT} WHERE seq = ?", (seq,)))
            ]

        return await self._writer.read(select)

    async def count(self) -> int:
        def count(database: sqlite3.Connection) -> int:
            (rows,) = database.execute("SELECT count(*) FROM entries").fetchone()
            return int(rows)

        return await self._writer.read(count)

    async def probe_disk(self) -> None:
        """Check whether the disk accepts rows again. Raises `OutboxUnwritable` if not."""

        def probe(database: sqlite3.Connection) -> None:
            database.execute("INSERT INTO facts VALUES ('probe', ?)", ("." * PROBE_BYTES,))
            database.execute("DELETE FROM facts WHERE name = 'probe'")

        await self._writer.do(probe)

    async def close(self) -> None:
        """Write accepted rows to disk, then release the folder. Safe to call twice."""
        await self._writer.close()


def _executing(statement: str, rows: list[tuple[Any, ...]]) -> Run[None]:
    def run(database: sqlite3.Connection) -> None:
        database.executemany(statement, rows)

    return run


def _entries(rows: sqlite3.Cursor) -> list[OutboxEntry]:
    return [OutboxEntry(*row) for row in rows]
