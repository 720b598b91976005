"""Delivers all that an outbox holds to the usage stream, and deletes what PostgreSQL has.

Rows whose receipt has come are deleted. Rows that are neither in the stream nor have a receipt are
appended again: Redis was emptied, or failed over to a replica that had not received them. Rows in
doubt are offered to `finish`: it has accepted them before, or their request went on elsewhere.
"""

import asyncio
from typing import Final

import structlog

from gpu_workers.finish import Accepted, Refused, UnknownRequest
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.outbox.calls import UsageCalls
from gpu_workers.outbox.disk import OutboxUnwritable
from gpu_workers.outbox.outbox import Outbox, OutboxEntry
from gpu_workers.outbox.waste import waste_entry
from gpu_workers.protocol import codec, stream_fields
from gpu_workers.protocol.calls import FinishMode
from gpu_workers.protocol.messages import WasteReason
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.protocol.usage import UsageEntry

TICK_SECONDS: Final = 1.0
# Rows that are checked at once, and in an undisturbed tick at all.
PAGE: Final = 500
# Of a tick in which some were missing, so that receipts are taken in between.
PAGES_OF_A_TICK: Final = 100
# Rows that are appended at once; where the stream is full the first call tells.
ROWS_OF_A_CALL: Final = 100
# For so long a live gateway may give the request of a killed worker to another one, and its client
# notices nothing. Longer than a lease.
GATEWAY_GRACE_SECONDS: Final = 15.0
# For so long a request that Redis does not know may be brought back by its gateway.
LOST_GRACE_SECONDS: Final = 60.0

_log = structlog.get_logger("gpu_workers.outbox.relay")


class OutboxRelay:
    """`run` for as long as the worker lives; `resync` when Redis may have lost something."""

    def __init__(
        self,
        outbox: Outbox,
        calls: UsageCalls,
        metrics: WorkerMetrics,
        *,
        worker_name: str,
        gateway_grace_seconds: float = GATEWAY_GRACE_SECONDS,
        lost_grace_seconds: float = LOST_GRACE_SECONDS,
    ) -> None:
        self._outbox = outbox
        self._calls = calls
        self._metrics = metrics
        self._worker_name = worker_name
        self._gateway_grace_seconds = gateway_grace_seconds
        self._lost_grace_seconds = lost_grace_seconds
        self._last_checked = 0  # the number of a row
        self._in_doubt_since: dict[int, float] = {}
        self._needs_resync = True
        self._is_resyncing = False
        self._is_withheld = True  # as far as an earlier process may have left it so

    def resync(self) -> None:
        """Have the next tick check every row, as Redis may have lost any, and report it."""
        self._needs_resync = True

    async def run(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception as error:
                if not isinstance(error, OutboxUnwritable) and not is_transient(error):
                    raise
                self._needs_resync = True
                _log.info("outbox_waits", reason=str(error) or type(error).__name__)
            await asyncio.sleep(TICK_SECONDS)

    async def tick(self) -> None:
        """Take one turn. Raises `OutboxUnwritable` if the disk refuses, and the errors of Redis."""
        if self._outbox.problem:
            await self._outbox.probe_disk()
        await self._delete_acknowledged()
        await self._resolve_in_doubt()
        if self._needs_resync:
            self._needs_resync, self._is_resyncing, self._last_checked = False, True, 0
        await self._check_pages()
        self._metrics.outbox_entries.set(await self._outbox.count())

    async def _delete_acknowledged(self) -> None:
        while seqs := await self._calls.take_receipts():
            self._outbox.forget(seqs)

    async def _check_pages(self) -> None:
        """Check one page, or more for as long as they were not up to date or in a resync; none
        beyond the rows that the stream has no room for, where the next tick goes on."""
        for _ in range(PAGES_OF_A_TICK):
            rows = await self._outbox.settled_after(self._last_checked, PAGE)
            missing = await self._calls.missing(rows) if rows else []
            if not await self._append(missing):
                self._last_checked = missing[0] - 1
                return
            if len(rows) < PAGE:
                await self._report_all_checked()
                return
            self._last_checked = rows[-1][0]
            if not missing and not self._is_resyncing:
                return

    async def _append(self, seqs: list[int]) -> bool:
        """Append rows, as far as the stream has room; return whether it has taken all of them."""
        for first in range(0, len(seqs), ROWS_OF_A_CALL):
            entries = await self._outbox.entries(seqs[first : first + ROWS_OF_A_CALL])
            stream_ids = await self._calls.append(entries)
            self._outbox.update_stream_ids(stream_ids)
            resent = sum(bool(entry.stream_id) for entry in entries)
            if resent:
                self._metrics.outbox_resent.inc(resent)
                _log.warning("usage_resent", entries=resent)
            if not all(stream_id for _, stream_id in stream_ids):
                self._is_withheld = True
                return False
        return True

    async def _report_all_checked(self) -> None:
        """Report what follows from a look at all rows, up to the last."""
        self._last_checked = 0
        if self._is_withheld:
            await self._calls.report_complete()
            self._is_withheld = False
        if self._is_resyncing:
            await self._calls.report_resynced(self._worker_name)
            self._is_resyncing = False

    async def _resolve_in_doubt(self) -> None:
        rows = await self._outbox.in_doubt()
        now = asyncio.get_running_loop().time()
        self._in_doubt_since = {row.seq: self._in_doubt_since.get(row.seq, now) for row in rows}
        if not rows:
            return
        live = await self._calls.live_gateways({row.gateway_id for row in rows if row.gateway_id})
        readable = self._readable(rows)
        offers = [
            (entry, self._outbox.origin(row.seq), self._mode(row, now, row.gateway_id in live))
            for row, entry in readable
        ]
        answers = await self._calls.offer(offers)
        weather: Exception | None = None
        for (row, entry), answer in zip(readable, answers, strict=True):
            if isinstance(answer, Accepted):
                self._outbox.mark_appended(row.seq, answer.stream_id)
                _log.info("usage_accepted_late", request_id=entry.request_id, attempt=entry.attempt)
            elif isinstance(answer, Refused):
                counted = answer.counted_elsewhere
                self._waste(row, entry, row.resumed if counted is None else counted, answer.reason)
            elif isinstance(answer, UnknownRequest):
                if self._is_given_up(row, now):
                    self._waste(row, entry, row.resumed, WasteReason.WORKER_LOST)
            elif isinstance(answer, Exception) and is_transient(answer):
                weather = answer
            elif isinstance(answer, Exception):
                # It stays in doubt, and keeps no other row.
                _log.error("usage_offer_failed", seq=row.seq, reason=str(answer))
        if weather is not None:
            raise weather

    def _readable(self, rows: list[OutboxEntry]) -> list[tuple[OutboxEntry, UsageEntry]]:
        """Decode rows; deliver one that cannot be decoded as it is: the consumer quarantines it."""
        readable = []
        for row in rows:
            try:
                readable.append((row, codec.decode_usage_entry(row.record)))
            except codec.WireFormatError as error:
                _log.error("outbox_entry_unreadable", seq=row.seq, reason=str(error))
                self._outbox.replace(row.seq, row.field, row.record)
        return readable

    def _mode(self, row: OutboxEntry, now: float, has_gateway: bool) -> FinishMode:
        """Choose the mode of `finish` for a row in doubt. An abandoned attempt only asks and never
        ends its request; any other may, once nobody else can be expected to."""
        seconds = now - self._in_doubt_since[row.seq]
        if row.field == stream_fields.WASTE_FIELD:
            return "ask"
        if seconds > self._lost_grace_seconds:
            return "lost"
        return "ask" if has_gateway and seconds < self._gateway_grace_seconds else ""

    def _is_given_up(self, row: OutboxEntry, now: float) -> bool:
        seconds = now - self._in_doubt_since[row.seq]
        return row.field == stream_fields.WASTE_FIELD and seconds > self._lost_grace_seconds

    def _waste(self, row: OutboxEntry, entry: UsageEntry, counted: int, reason: str) -> None:
        """Replace a record by the waste of its attempt: all tokens but those counted elsewhere."""
        waste = waste_entry(entry, counted, reason)
        if waste is None:
            self._outbox.forget([row.seq])
            return
        self._metrics.wasted(waste)
        self._outbox.replace(row.seq, stream_fields.WASTE_FIELD, codec.encode(waste))
