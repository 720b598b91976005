"""Usage streams are read: every terminal record of every pool, whatever fails.

An entry leaves its stream only after the commit that made it a record (`ingest`), so a crash
or an outage means reading it again, which is harmless. In the call in which it leaves, the worker
that keeps it in its outbox gets a receipt (docs/adr/0013).
"""

import os
import secrets
import socket
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Final, cast

import structlog
from django.conf import settings
from django.db import Error as DatabaseFailure
from django.db import connection
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from gpu_workers.protocol import functions, keys, stream_fields
from gpu_workers.protocol.redis_errors import is_function_missing
from gpu_workers.protocol.redis_url import connect
from inference.models import UsageQuarantine
from inference.pools import alone, known_pools
from inference.redis_functions import DISPATCH, library_text
from inference.usage.ingest import record_entries
from inference.usage.rows import StreamEntry, first_line

log = structlog.get_logger(__name__)

# Of one call of Redis, which serves nobody else meanwhile.
PAGE: Final = 1000
# In one transaction: alone where little comes in; with a backlog the more, the less each costs, as
# a tenant is charged once for all of its own.
PAGES_OF_A_BATCH: Final = 10
# Entries that do not fill a page gather for so long: a batch costs about the same whatever it
# holds, and takes CPU time from answers that are under way.
GATHER_SECONDS: Final = 1.0
COLLECTORS: Final = 2
# What another consumer has held for this long without acknowledging it is taken over.
CLAIM_AFTER_MS: Final = 30_000
CLAIM_EVERY_SECONDS: Final = 10.0
FORGET_CONSUMER_AFTER_MS: Final = 3_600_000
# A worker that is away for longer sends all of it again, which is harmless.
RECEIPTS_TTL_SECONDS: Final = 7 * 86_400
MIN_BACKOFF_SECONDS: Final = 0.2
# Several times what a batch takes to gather and to be recorded.
POSTING_TIMEOUT_SECONDS: Final = 5.0
_LOOK_PAUSE_SECONDS: Final = 0.05
MAX_BACKOFF_SECONDS: Final = 5.0


def run_collectors(stop: threading.Event) -> None:
    """Run several collectors, each with a connection of its own, until told to stop: while
    PostgreSQL records a batch of one, another reads the next. Raises what ends any of them."""
    with (
        dispatch_redis() as redis,
        ThreadPoolExecutor(COLLECTORS, thread_name_prefix="collector") as threads,
    ):
        running = [threads.submit(_run_collector, redis, stop) for _ in range(COLLECTORS)]
        wait(running, return_when=FIRST_COMPLETED)
        stop.set()
    for each in running:
        each.result()


def _run_collector(redis: Redis, stop: threading.Event) -> None:
    try:
        UsageCollector(redis).run(stop)
    finally:
        connection.close()


class UsageCollector:
    """One consumer of all pools' usage streams. Several may run beside each other."""

    def __init__(self, redis: Redis, *, consumer: str | None = None) -> None:
        self._redis = redis
        self._consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._groups: set[str] = set()
        self._last_claim: dict[str, float] = {}

    def run(self, stop: threading.Event) -> None:
        """Collect until told to stop. Outages of PostgreSQL and Redis are waited out."""
        backoff = MIN_BACKOFF_SECONDS
        while not stop.is_set():
            try:
                collected = self._collect_all()
            except (DatabaseFailure, RedisError) as error:
                log.warning(
                    "usage_collection_failed", error=first_line(error), retry_seconds=backoff
                )
                self._forget_connections()
                stop.wait(backoff)
                backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
                continue
            backoff = MIN_BACKOFF_SECONDS
            if collected < PAGE:
                stop.wait(GATHER_SECONDS)

    def drain(self) -> int:
        """Collect all there is, what other consumers left unfinished too; returns how many."""
        total = 0
        for pool in self.pools():
            with alone(pool):
                self._ensure_group(pool)
                while claimed := self._claim(pool, idle_ms=0):
                    total += self._record(pool, [claimed])
        while collected := self._collect_all():
            total += collected
        return total

    def has_ingested(self, *, within_seconds: float) -> bool:
        """Return whether what is in the streams by now has left them within that time, whatever
        comes meanwhile. False where one cannot be read, as nobody knows what it holds."""
        waiting: dict[str, str] = {}
        for pool in self.pools():
            is_read = False
            with alone(pool):
                if last := self._newest(pool):
                    waiting[pool] = last
                is_read = True
            if not is_read:
                return False
        until = time.monotonic() + within_seconds
        while waiting := {pool: last for pool, last in waiting.items() if self._has(pool, last)}:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_PAUSE_SECONDS)
        return True

    def _newest(self, pool: str) -> str | None:
        found = cast(list[_Row], self._redis.xrevrange(keys.pool_usage(pool), count=1))
        return found[0][0].decode() if found else None

    def _has(self, pool: str, until: str) -> bool:
        with alone(pool):
            return bool(self._redis.xrange(keys.pool_usage(pool), max=until, count=1))
        return True

    def has_backlog(self) -> bool:
        """Return whether any stream holds an entry: each leaves it only after its commit."""
        for pool in self.pools():
            with alone(pool):
                if self._newest(pool):
                    return True
        return False

    def is_any_withheld(self) -> bool:
        """Return whether an outbox has entries that its stream had no room for."""
        return any(self._redis.exists(keys.pool_usage_withheld(pool)) for pool in self.pools())

    def pools(self) -> list[str]:
        """Return all pools, those too that no worker ever served: their requests expire, and that
        is on record too."""
        return known_pools(self._redis)

    def _collect_all(self) -> int:
        # One call a pool: what is read together is acknowledged together, by the pool's function.
        collected = 0
        for pool in self.pools():
            with alone(pool):
                collected += self._collect(pool)
                continue
            # It may be that its group is gone.
            self._groups.discard(pool)
        return collected

    def _collect(self, pool: str) -> int:
        """Return one batch of what this consumer read before and could not record, what a dead one
        left, or what is new."""
        self._ensure_group(pool)
        pages = [self._take_over(pool) or self._read(pool, since=">")]
        while len(pages[-1]) == PAGE and len(pages) < PAGES_OF_A_BATCH:
            pages.append(self._read(pool, since=">"))
        return self._record(pool, pages)

    def _take_over(self, pool: str) -> list[StreamEntry]:
        now = time.monotonic()
        if now - self._last_claim.get(pool, -CLAIM_EVERY_SECONDS) < CLAIM_EVERY_SECONDS:
            return []
        own = self._read(pool, since="0")
        entries = own or self._claim(pool, idle_ms=CLAIM_AFTER_MS)
        if not entries:
            self._last_claim[pool] = now
            self._forget_idle_consumers(pool)
        return entries

    def _read(self, pool: str, *, since: str) -> list[StreamEntry]:
        answer = self._redis.xreadgroup(
            stream_fields.USAGE_CONSUMER_GROUP,
            self._consumer,
            {keys.pool_usage(pool): since},
            count=PAGE,
        )
        return [entry for _stream, rows in _streams(answer) for entry in _entries(pool, rows)]

    def _claim(self, pool: str, *, idle_ms: int) -> list[StreamEntry]:
        _next, rows, *_deleted = self._redis.xautoclaim(
            keys.pool_usage(pool),
            stream_fields.USAGE_CONSUMER_GROUP,
            self._consumer,
            min_idle_time=idle_ms,
            count=PAGE,
        )
        return _entries(pool, rows)

    def _record(self, pool: str, pages: list[list[StreamEntry]]) -> int:
        entries = [entry for page in pages for entry in page]
        if not entries:
            return 0
        record_entries(entries)
        for page in filter(None, pages):
            self._acknowledge(pool, page)
        return len(entries)

    def _acknowledge(self, pool: str, entries: list[StreamEntry]) -> None:
        arguments: list[str | int] = [keys.pool_prefix(pool), stream_fields.USAGE_CONSUMER_GROUP]
        arguments.append(RECEIPTS_TTL_SECONDS)
        for entry in entries:
            arguments += (entry.stream_id, entry.origin)
        try:
            self._redis.fcall(functions.ACKNOWLEDGE_USAGE, 1, *arguments)
        except ResponseError as error:
            if not is_function_missing(error):
                raise
            # A Redis that came back empty; this process may load them.
            self._redis.function_load(library_text(DISPATCH), replace=True)
            self._redis.fcall(functions.ACKNOWLEDGE_USAGE, 1, *arguments)

    def _ensure_group(self, pool: str) -> None:
        if pool in self._groups:
            return
        try:
            self._redis.xgroup_create(
                keys.pool_usage(pool), stream_fields.USAGE_CONSUMER_GROUP, id="0", mkstream=True
            )
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        self._groups.add(pool)

    def _forget_idle_consumers(self, pool: str) -> None:
        stream = keys.pool_usage(pool)
        for consumer in self._redis.xinfo_consumers(stream, stream_fields.USAGE_CONSUMER_GROUP):
            if consumer["pending"] == 0 and consumer["idle"] > FORGET_CONSUMER_AFTER_MS:
                self._redis.xgroup_delconsumer(
                    stream, stream_fields.USAGE_CONSUMER_GROUP, consumer["name"]
                )

    def _forget_connections(self) -> None:
        """Forget groups and connections: a Redis that came back empty has none of them."""
        self._groups.clear()
        self._last_claim.clear()
        connection.close()


_Row = tuple[bytes, dict[bytes, bytes] | None]


def _streams(answer: object) -> list[tuple[bytes, list[_Row]]]:
    """Read the streams of an answer: RESP2 gives a list, RESP3 a map."""
    if isinstance(answer, dict):
        return [(name, pages[0] if pages else []) for name, pages in answer.items()]
    return list(answer) if isinstance(answer, list) else []


def _entries(pool: str, rows: list[_Row]) -> list[StreamEntry]:
    return [
        StreamEntry(
            pool=pool, stream_id=stream_id.decode(), data=_data(fields), origin=_origin(fields)
        )
        for stream_id, fields in rows
    ]


def _data(fields: dict[bytes, bytes] | None) -> bytes | None:
    if not fields:
        return None
    for name in (
        stream_fields.USAGE_FIELD,
        stream_fields.WASTE_FIELD,
        stream_fields.ENGINE_COUNTER_FIELD,
    ):
        if (data := fields.get(name.encode())) is not None:
            return data
    # Without a field that entries have, all of it goes on, into quarantine.
    return repr(fields).encode()


def _origin(fields: dict[bytes, bytes] | None) -> str:
    return (fields or {}).get(stream_fields.OUTBOX_FIELD.encode(), b"").decode(errors="replace")


def is_all_usage_posted() -> bool:
    """Return whether all usage that was sent to Redis so far is in the ledger: it has left its
    stream, as an entry does only after its commit, and none is in quarantine, whence it may yet be
    billed. Read the ledger afterwards. What an outbox alone holds is seen only where the stream had
    no room for it. Needs the `operator_scope`."""
    with dispatch_redis() as redis:
        collector = UsageCollector(redis)
        if collector.is_any_withheld():
            return False
        if not collector.has_ingested(within_seconds=POSTING_TIMEOUT_SECONDS):
            return False
        if collector.is_any_withheld():
            return False
    return not UsageQuarantine.objects.exists()


def dispatch_redis() -> Redis:
    """Open a client for a collector, which reads without blocking."""
    return connect(settings.PENSTOCK_DISPATCH_REDIS_URL, socket_timeout=10)
