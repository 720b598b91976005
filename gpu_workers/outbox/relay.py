"""Sees to it that all that an outbox holds is told, and forgets what PostgreSQL has.

Rows whose receipt has come go. Rows that are in the stream no more, and have none, are appended
again: Redis was emptied, or failed over to a replica that had not heard of them. Rows in doubt are
offered to `finish`: it has accepted them before, or their request went on elsewhere.
"""

import asyncio
from typing import Final

import structlog

from gpu_workers.metrics import WorkerMetrics
from gpu_workers.outbox.calls import UsageCalls
from gpu_workers.outbox.disk import OutboxUnwritable
from gpu_workers.outbox.outbox import Outbox, OutboxEntry
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.calls import FinishMode
from gpu_workers.protocol.messages import UsageEntry, WasteReason
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.requests.open_request import waste_entry
from gpu_workers.transport import Accepted, Refused, UnknownRequest

TICK_SECONDS: Final = 1.0
# Rows that are asked after at once, and in an undisturbed tick at all.
PAGE: Final = 500
# For so long a gateway that lives may give the request of a killed worker to another one, whose
# client then notices nothing. Longer than a lease.
GATEWAY_PATIENCE_SECONDS: Final = 15.0
# For so long a request that Redis does not know may be brought back by its gateway.
LOST_PATIENCE_SECONDS: Final = 60.0

_log = structlog.get_logger("gpu_workers.outbox.relay")


class OutboxRelay:
    """`run` for as long as the worker lives; `tell_all` when Redis may have lost something."""

    def __init__(
        self,
        outbox: Outbox,
        calls: UsageCalls,
        metrics: WorkerMetrics,
        *,
        worker_name: str,
        gateway_patience_seconds: float = GATEWAY_PATIENCE_SECONDS,
        lost_patience_seconds: float = LOST_PATIENCE_SECONDS,
    ) -> None:
        self._outbox = outbox
        self._calls = calls
        self._metrics = metrics
        self._worker_name = worker_name
        self._gateway_patience_seconds = gateway_patience_seconds
        self._lost_patience_seconds = lost_patience_seconds
        self._place = 0  # the last row that was asked after
        self._doubted_since: dict[int, float] = {}
        self._tell_all = asyncio.Event()
        self._tell_all.set()

    def tell_all(self) -> None:
        """Redis may have lost anything: ask after every row, and say when that is done."""
        self._tell_all.set()

    async def run(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception as error:
                if not isinstance(error, OutboxUnwritable) and not is_transient(error):
                    raise
                self._tell_all.set()
                _log.info("outbox_waits", reason=str(error) or type(error).__name__)
            await asyncio.sleep(TICK_SECONDS)

    async def tick(self) -> None:
        """One turn. Raises what Redis and the disk raise."""
        if self._outbox.problem:
            await self._outbox.try_disk()
        await self._forget_what_has_receipts()
        await self._decide_what_is_in_doubt()
        if self._tell_all.is_set():
            self._tell_all.clear()
            self._place = 0
            while await self._ask_after_page():
                pass
            await self._calls.say_resent(self._worker_name)
        else:
            await self._ask_after_page()
        self._metrics.outbox_entries.set(await self._outbox.count())

    async def _forget_what_has_receipts(self) -> None:
        while seqs := await self._calls.take_receipts():
            self._outbox.forget(seqs)

    async def _ask_after_page(self) -> bool:
        """The next rows, appended again where they are lost. False after the last ones."""
        rows = await self._outbox.settled_after(self._place, PAGE)
        self._place = rows[-1][0] if len(rows) == PAGE else 0
        if rows and (missing := await self._calls.missing(rows)):
            entries = await self._outbox.entries(missing)
            self._outbox.note_appended(await self._calls.append(entries))
            again = sum(bool(entry.stream_id) for entry in entries)
            if again:
                self._metrics.outbox_resent.inc(again)
                _log.warning("usage_told_again", entries=again)
        return len(rows) == PAGE

    async def _decide_what_is_in_doubt(self) -> None:
        rows = await self._outbox.in_doubt()
        now = asyncio.get_running_loop().time()
        self._doubted_since = {row.seq: self._doubted_since.get(row.seq, now) for row in rows}
        if not rows:
            return
        live = await self._calls.live_gateways({row.gateway_id for row in rows if row.gateway_id})
        readable = self._readable(rows)
        offers = [
            (entry, self._outbox.origin(row.seq), self._mode(row, now, row.gateway_id in live))
            for row, entry in readable
        ]
        answers = await self._calls.offer(offers)
        for (row, entry), answer in zip(readable, answers, strict=True):
            if isinstance(answer, Accepted):
                self._outbox.settle(row.seq, answer.stream_id)
                _log.info("usage_accepted_late", request_id=entry.request_id, attempt=entry.attempt)
            elif isinstance(answer, Refused):
                told = row.resumed if answer.told_elsewhere is None else answer.told_elsewhere
                self._waste(row, entry, told, answer.reason)
            elif isinstance(answer, UnknownRequest) and self._is_given_up(row, now):
                self._waste(row, entry, row.resumed, WasteReason.WORKER_LOST)

    def _readable(self, rows: list[OutboxEntry]) -> list[tuple[OutboxEntry, UsageEntry]]:
        """What cannot be read is told as it is: the consumer quarantines it."""
        readable = []
        for row in rows:
            try:
                readable.append((row, codec.decode_usage_entry(row.record)))
            except codec.WireFormatError as error:
                _log.error("outbox_entry_unreadable", seq=row.seq, reason=str(error))
                self._outbox.settle(row.seq, "")
        return readable

    def _mode(self, row: OutboxEntry, now: float, has_gateway: bool) -> FinishMode:
        """An attempt that was abandoned never ends its request; another one may, once nobody else
        can be expected to."""
        seconds = now - self._doubted_since[row.seq]
        if row.field == keys.WASTE_FIELD:
            return "ask"
        if seconds > self._lost_patience_seconds:
            return "lost"
        return "ask" if has_gateway and seconds < self._gateway_patience_seconds else ""

    def _is_given_up(self, row: OutboxEntry, now: float) -> bool:
        seconds = now - self._doubted_since[row.seq]
        return row.field == keys.WASTE_FIELD and seconds > self._lost_patience_seconds

    def _waste(self, row: OutboxEntry, entry: UsageEntry, told: int, reason: str) -> None:
        waste = waste_entry(entry, told, reason)
        if waste is None:
            self._outbox.forget([row.seq])
            return
        self._metrics.wasted(waste)
        self._outbox.turn_into(row.seq, keys.WASTE_FIELD, codec.encode(waste))
