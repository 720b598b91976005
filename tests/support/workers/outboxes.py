"""An outbox whose disk a test can fill: SQLite's own bound on its file gives the very error that a
full disk gives."""

from contextlib import suppress
from pathlib import Path

from gpu_workers.outbox.disk import OutboxUnwritable, Writer, connect, lock
from gpu_workers.outbox.outbox import LOCK_TIMEOUT_SECONDS, Outbox
from gpu_workers.protocol import stream_fields

ENOUGH_PAGES = 1_000_000


class SmallDisk:
    """What lies under an outbox, opened as `Outbox.open` does."""

    def __init__(self, folder: Path, *, pool: str) -> None:
        descriptor = lock(folder, LOCK_TIMEOUT_SECONDS)
        database, outbox_id = connect(folder, pool)
        self._writer = Writer(database, descriptor, folder)
        self.outbox = Outbox(self._writer, outbox_id, folder)

    async def fill(self) -> None:
        """Leave room for nothing, not for a byte in the last page."""
        await self.bound(pages=1)
        for size in (10_000, 1_000, 100, 10, 1):
            with suppress(OutboxUnwritable):
                while True:
                    await self.outbox.put_settled(stream_fields.WASTE_FIELD, b"x" * size)
        assert self.outbox.problem

    async def bound(self, *, pages: int) -> None:
        await self._writer.read(
            lambda database: database.execute(f"PRAGMA max_page_count={pages}").fetchone()
        )

    async def make_room(self) -> None:
        await self.bound(pages=ENOUGH_PAGES)
