"""What a worker has to tell of usage, on its own disk until PostgreSQL has it (docs/adr/0013).

A row is provisional until `finish` has accepted it. Then it is settled, and goes when its receipt
has come.
"""

import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_workers.outbox.disk import OutboxError, Run, Writer, connect, lock

# A predecessor that was killed may take its children with it a little later.
LOCK_PATIENCE_SECONDS: Final = 5.0
FREE_FOLDERS: Final = 1000
# Room that is asked for before the disk is trusted again: some rows' worth.
TRIED_BYTES: Final = 64 * 1024

_SELECT: Final = "SELECT seq, field, record, gateway_id, resumed, stream_id FROM entries"


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One row. `field` is the stream's field that bears `record`; `resumed` the tokens that its
    attempt went on from; `stream_id` '' until it is in the stream. A provisional record is always a
    `UsageEntry`: its attempt ends its request, or, of the field `waste`, never will."""

    seq: int
    field: str
    record: bytes
    gateway_id: str
    resumed: int
    stream_id: str


class Outbox:
    """Made by `open`; every method is for the event loop on which it was opened."""

    def __init__(self, writer: Writer, outbox_id: str, folder: Path) -> None:
        self.outbox_id = outbox_id
        self.folder = folder
        self._writer = writer
        self._in_flight: set[int] = set()

    @classmethod
    def open(cls, folder: Path, *, pool: str) -> "Outbox":
        """Raises `OutboxError` where another process holds it, another pool's entries are in it, or
        the disk refuses."""
        return cls._open(folder, lock(folder, LOCK_PATIENCE_SECONDS), pool)

    @classmethod
    def open_free(cls, root: Path, *, pool: str) -> "Outbox":
        """The first folder of the pool under `root` that no other process holds: with it, what a
        dead worker left behind."""
        for number in range(FREE_FOLDERS):
            folder = root / f"{pool.replace('/', '%2F')}-{number}"
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = lock(folder, 0)
            except OutboxError as error:
                if isinstance(error.__cause__, OSError):
                    raise
                continue
            return cls._open(folder, descriptor, pool)
        raise OutboxError(f"All {FREE_FOLDERS} outboxes of {pool} under {root} are held.")

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
        """What the disk says, as long as it takes nothing."""
        return self._writer.problem

    def origin(self, seq: int) -> str:
        """What a stream entry of ours says of where it comes from."""
        return f"{self.outbox_id} {seq}"

    async def put(self, field: str, record: bytes, *, gateway_id: str, resumed: int) -> int:
        """A provisional row, on disk when this returns its number. It is in flight until it is
        settled, forgotten, doubted or turned. Raises `OutboxUnwritable`."""

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
        """A row that only has to be told. Raises `OutboxUnwritable`."""
        statement = "INSERT INTO entries (is_settled, field, record) VALUES (1, ?, ?)"
        await self._writer.do(_executing(statement, [(field, record)]))

    def settle(self, seq: int, stream_id: str) -> None:
        """`finish` has accepted it, and appended it to the stream."""
        statement = "UPDATE entries SET is_settled = 1, stream_id = ? WHERE seq = ?"
        self._writer.later(_executing(statement, [(stream_id, seq)]))
        self._in_flight.discard(seq)

    def turn_into(self, seq: int, field: str, record: bytes) -> None:
        """`finish` has refused it: this is to be told in its place."""
        statement = (
            "UPDATE entries SET is_settled = 1, stream_id = '', field = ?, record = ? WHERE seq = ?"
        )
        self._writer.later(_executing(statement, [(field, record, seq)]))
        self._in_flight.discard(seq)

    def forget(self, seqs: Iterable[int]) -> None:
        """There is nothing to tell, or PostgreSQL has it."""
        rows = [(seq,) for seq in seqs]
        self._writer.later(_executing("DELETE FROM entries WHERE seq = ?", rows))
        self._in_flight.difference_update(seq for (seq,) in rows)

    def doubt(self, seq: int) -> None:
        """What became of its request is not known: that is found out later."""
        self._in_flight.discard(seq)

    def note_appended(self, stream_ids: Iterable[tuple[int, str]]) -> None:
        """Where rows are in the stream now."""
        rows = [(stream_id, seq) for seq, stream_id in stream_ids]
        self._writer.later(_executing("UPDATE entries SET stream_id = ? WHERE seq = ?", rows))

    async def in_doubt(self) -> list[OutboxEntry]:
        """Provisional rows that nobody is finishing: an earlier process left them, or `doubt`."""

        def select(database: sqlite3.Connection) -> list[OutboxEntry]:
            return _entries(database.execute(f"{_SELECT} WHERE NOT is_settled ORDER BY seq"))

        rows = await self._writer.read(select)
        return [row for row in rows if row.seq not in self._in_flight]

    async def settled_after(self, seq: int, limit: int) -> list[tuple[int, str]]:
        """Number and stream id of the next settled rows."""

        def select(database: sqlite3.Connection) -> list[tuple[int, str]]:
            return database.execute(
                "SELECT seq, stream_id FROM entries WHERE is_settled AND seq > ?"
                " ORDER BY seq LIMIT ?",
                (seq, limit),
            ).fetchall()

        return await self._writer.read(select)

    async def entries(self, seqs: Iterable[int]) -> list[OutboxEntry]:
        """These rows, as far as they are still there."""
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

    async def try_disk(self) -> None:
        """Whether the disk takes rows again; raises `OutboxUnwritable` if not."""

        def try_it(database: sqlite3.Connection) -> None:
            database.execute("INSERT INTO facts VALUES ('tried', ?)", ("." * TRIED_BYTES,))
            database.execute("DELETE FROM facts WHERE name = 'tried'")

        await self._writer.do(try_it)

    async def close(self) -> None:
        """What was asked for is on disk, and another process may have the outbox. Twice is fine."""
        await self._writer.close()


def _executing(statement: str, rows: list[tuple[Any, ...]]) -> Run[None]:
    def run(database: sqlite3.Connection) -> None:
        database.executemany(statement, rows)

    return run


def _entries(rows: sqlite3.Cursor) -> list[OutboxEntry]:
    return [OutboxEntry(*row) for row in rows]
