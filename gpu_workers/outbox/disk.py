"""The disk under an outbox: a folder that one process holds, a SQLite file, a thread that writes.

All work that arrives while the disk is busy shares the next commit, so the requests that end in one
step of the engine share one fsync.
"""

import asyncio
import fcntl
import os
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

_T = TypeVar("_T")
Run = Callable[[sqlite3.Connection], _T]

FILE: Final = "outbox.sqlite3"
# Work that nobody waits for goes to disk with the next commit, or after this.
LAZY_SECONDS: Final = 0.25

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    is_settled INTEGER NOT NULL,
    field TEXT NOT NULL,
    record BLOB NOT NULL,
    gateway_id TEXT NOT NULL DEFAULT '',
    resumed INTEGER NOT NULL DEFAULT 0,
    stream_id TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS entries_in_doubt ON entries (seq) WHERE NOT is_settled;
"""

_log = structlog.get_logger("gpu_workers.outbox.disk")


class OutboxError(RuntimeError):
    """The outbox cannot be opened; the message says why and what to do."""


class OutboxHeld(OutboxError):
    """Another process has it open."""


class OutboxOfOtherPool(OutboxError):
    """It holds entries of another pool."""


class OutboxUnusable(OutboxError):
    """Its folder cannot be written, or its file is damaged."""


class OutboxUnwritable(RuntimeError):
    """The disk does not take a row: it is full, read-only or broken."""


def lock(folder: Path, timeout_seconds: float) -> int:
    """Return a descriptor that holds the folder until it is closed, or this process ends. Raises
    `OutboxHeld` if another process holds it for longer than `timeout_seconds`, `OutboxUnusable` if
    the folder cannot be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OutboxUnusable(
            f"The outbox in {folder} cannot be opened: {error.strerror}. Name a folder that this "
            "user may write in PENSTOCK_WORKER_OUTBOX."
        ) from error
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise OutboxHeld(
                    f"Another process holds the outbox in {folder}: give each worker a folder of "
                    "its own in PENSTOCK_WORKER_OUTBOX, or end the other one."
                ) from None
            time.sleep(0.05)


def connect(folder: Path, pool: str) -> tuple[sqlite3.Connection, str]:
    """Open the database for the pool; return it and the outbox's own id, made once. Raises
    `OutboxOfOtherPool` if it holds another pool's entries, else `OutboxUnusable` if it cannot be
    opened."""
    try:
        database = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.executescript(_SCHEMA)
        return database, _identity(database, folder, pool)
    except sqlite3.Error as error:
        raise OutboxUnusable(
            f"The outbox in {folder} cannot be opened: {error}. Mend the disk, or name another "
            "folder in PENSTOCK_WORKER_OUTBOX and keep this one for its entries."
        ) from error


def _identity(database: sqlite3.Connection, folder: Path, pool: str) -> str:
    facts = dict(database.execute("SELECT name, value FROM facts").fetchall())
    (left,) = database.execute("SELECT count(*) FROM entries").fetchone()
    if left and facts.get("pool") != pool:
        raise OutboxOfOtherPool(
            f"The outbox in {folder} holds {left} entries of the pool {facts.get('pool')}: start a "
            f"worker of that pool with it, and give this one of {pool} another folder in "
            "PENSTOCK_WORKER_OUTBOX."
        )
    outbox_id = str(facts.get("id") or secrets.token_hex(8))
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.executemany(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            [("id", outbox_id), ("pool", pool)],
        )
    return outbox_id


@dataclass(frozen=True, slots=True)
class _Work:
    """Something to do in the next transaction. Nobody waits for it if `done` is None."""

    run: Run[Any]
    done: "asyncio.Future[Any] | None"
    only_reads: bool


class Writer:
    """A thread that owns the database from here on, and the folder's lock."""

    def __init__(self, database: sqlite3.Connection, descriptor: int, folder: Path) -> None:
        self.problem = ""  # what the disk says, as long as it takes nothing
        self._database = database
        self._descriptor = descriptor
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._gathered: list[_Work] = []
        self._work: queue.SimpleQueue[list[_Work] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    async def do(self, run: Run[_T]) -> _T:
        """Run in a transaction and return its result once that is on disk. Raises
        `OutboxUnwritable` if the disk refuses."""
        return await self._ask(run, only_reads=False)

    async def read(self, run: Run[_T]) -> _T:
        return await self._ask(run, only_reads=True)

    def do_later(self, run: Run[Any]) -> None:
        """Run soon, in order, and retry while the disk refuses; lost if the process dies first."""
        self._gather(_Work(run, None, only_reads=False))

    async def close(self) -> None:
        """Finish all accepted work, then let another process have the folder. This holds even if
        the wait is cancelled; closing again does nothing."""
        if not self._is_closed:
            self._hand_over()
            self._is_closed = True
            self._work.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _ask(self, run: Run[_T], *, only_reads: bool) -> _T:
        if self._is_closed:
            raise OutboxUnwritable("the outbox is closed")
        done: asyncio.Future[_T] = self._loop.create_future()
        self._gather(_Work(run, done, only_reads))
        return await done

    def _gather(self, work: _Work) -> None:
        """Hand the work over after the other tasks that the same engine step woke."""
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(work)

    def _hand_over(self) -> None:
        if self._gathered and not self._is_closed:
            self._work.put(self._gathered)
            self._gathered = []

    # in the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            self._commit([work for work in batch if not work.only_reads])
            for work in batch:
                if work.only_reads:
                    self._resolve([work], *self._try([work]))
        self._database.close()
        os.close(self._descriptor)

    def _next_batch(self) -> tuple[list[_Work], bool]:
        """Collect work until some of it is awaited or the oldest has waited `LAZY_SECONDS`. Return
        it, and False once the writer is closed."""
        batch: list[_Work] = []
        timeout: float | None = None
        deadline = 0.0
        while True:
            try:
                more = self._work.get(timeout=timeout)
            except queue.Empty:
                return batch, True
            if more is None:
                return batch, False
            batch += more
            # What was handed over together with somebody's wish goes with it.
            deadline = deadline or time.monotonic() + LAZY_SECONDS
            is_awaited = any(work.done for work in batch)
            timeout = 0 if is_awaited else max(0, deadline - time.monotonic())

    def _commit(self, batch: list[_Work]) -> None:
        """Run the whole batch in one transaction, or none of it."""
        if not batch:
            return
        answers, problem = self._try(batch, begin="BEGIN IMMEDIATE")
        if problem and not self.problem:
            _log.error("outbox_cannot_be_written", folder=str(self._folder), reason=problem)
        elif self.problem and not problem and any(work.done for work in batch):
            _log.info("outbox_is_written_again", folder=str(self._folder))
            self.problem = ""
        self.problem = problem or self.problem
        self._resolve(batch, answers, problem)
        if problem and (left := [work for work in batch if work.done is None]):
            time.sleep(LAZY_SECONDS)
            self._work.put(left)

    def _try(self, batch: list[_Work], *, begin: str = "") -> tuple[list[Any], str]:
        """Run the batch; return its answers and, if the disk refuses, why ("" otherwise)."""
        try:
            with self._database:
                if begin:
                    self._database.execute(begin)
                return [work.run(self._database) for work in batch], ""
        except sqlite3.Error as error:
            return [None] * len(batch), str(error) or type(error).__name__

    def _resolve(self, batch: list[_Work], answers: list[Any], problem: str) -> None:
        """Hand the answers to whoever waits for them, on the event loop."""
        waited = [
            (work.done, answer)
            for work, answer in zip(batch, answers, strict=True)
            if work.done is not None
        ]
        if waited and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, waited, problem)


def _resolve(waited: "list[tuple[asyncio.Future[Any], Any]]", problem: str) -> None:
    for done, answer in waited:
        if done.done():
            continue
        if problem:
            done.set_exception(OutboxUnwritable(problem))
        else:
            done.set_result(answer)
