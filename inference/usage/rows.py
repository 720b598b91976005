"""An entry of a usage stream, and the row that it is to be, if it can be one."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import msgspec

from gpu_workers.protocol.codec import WireFormatError, decode_usage
from gpu_workers.protocol.labels import MAX_LABELS, is_label_name, label_value
from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.request_id import made_at_ms
from gpu_workers.protocol.usage import EngineTokenCounter, UsageEntry, WasteEntry
from inference.charges import actual
from inference.models.usage import ID_TOLERANCE, QuarantineCause
from inference.usage.partitions import MONTHS_BACK, moment, month_of, months_later
from inference.usage.rating.admitted import AdmissionCheck, Distrusted
from inference.usage.rollups import Use

# How far ahead of ours the clock of whoever wrote an entry may be.
_AHEAD_MS: Final = 300_000
_COMPLETED: Final = Outcome.COMPLETED.value
# A hundred thousand dollars for one request is a mistake, and sums must hold a great many of them.
_MOST_NANOS: Final = 10**14
_ID_TOLERANCE_MS: Final = int(ID_TOLERANCE.total_seconds() * 1000)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamEntry:
    """An entry as it was read. `data` is None if it has gone from the stream since; `origin` says
    where in a worker's outbox it is kept, empty if in none."""

    pool: str
    stream_id: str
    data: bytes | None
    origin: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """An entry that can be no row."""

    entry: StreamEntry
    reason: str
    cause: QuarantineCause = QuarantineCause.INVALID

    @property
    def request_id(self) -> str:
        """Return the request's id as gateways log it; empty of what says none."""
        try:
            entry = decode_usage(self.entry.data or b"")
            return uuid.UUID(getattr(entry, "request_id", "")).hex
        except Exception:  # noqa: BLE001 - what nobody foresaw in it may be met here again
            return ""

    @property
    def shown_reason(self) -> str:
        """Shorten a reason to what the quarantine can hold."""
        return self.reason.replace("\0", "")[:500]


class _AttemptRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What both tables of attempts say of one."""

    request_id: str
    attempt: int
    tenant_id: str
    project_id: str
    api_key_id: str
    tier: str
    pool: str
    model: str
    adapter: str
    worker_id: str | None
    completion_tokens: int
    generated_tokens: int
    recorded_at: datetime
    labels: dict[str, str] | None

    def _use(self, arrived_ms: int, **sums: Any) -> Use:
        return Use(
            tenant_id=self.tenant_id,
            project_id=self.project_id,
            api_key_id=self.api_key_id,
            model=self.model,
            adapter=self.adapter,
            tier=self.tier,
            pool=self.pool,
            arrived_ms=arrived_ms,
            **sums,
        )


class RecordRow(_AttemptRow, frozen=True, gc=False, kw_only=True):
    """A row of `UsageRecord`; its fields are the columns."""

    service_class: str
    api: str
    stream: bool
    outcome: str
    finish_reason: str | None
    error_code: str | None
    prompt_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    wasted_tokens: int
    waste_reason: str
    price_prompt: int
    price_cached: int
    price_completion: int
    price_permille: int
    cost_nanos: int
    arrived_at: datetime
    finished_at: datetime
    queue_ms: int | None
    ttft_ms: int | None
    itl_p50_ms: float | None
    itl_p95_ms: float | None
    adapter_version: int
    owed: bool | None

    @property
    def key(self) -> tuple[str | int, ...]:
        return (self.request_id,)

    def use(self) -> Use:
        """Return what it adds to the rollups."""
        arrived, finished = self.arrived_at.timestamp(), self.finished_at.timestamp()
        waited_ms = max(0.0, finished - arrived) * 1000
        return self._use(
            int(arrived * 1000),
            service_class=self.service_class,
            outcome=self.outcome,
            error_code=self.error_code,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=self.reasoning_tokens,
            wasted_tokens=self.wasted_tokens,
            cost_nanos=self.cost_nanos,
            ttft_ms=self.ttft_ms,
            itl_ms=self.itl_p50_ms,
            itl_p95_ms=self.itl_p95_ms,
            queue_ms=self.queue_ms,
            duration_ms=waited_ms if self.outcome == _COMPLETED else None,
            waited_ms=waited_ms,
            owed=self.owed,
        )


class WasteRow(_AttemptRow, frozen=True, gc=False, kw_only=True):
    """A row of `WastedAttempt`; its fields are the columns."""

    reason: str
    ended_at: datetime

    @property
    def key(self) -> tuple[str | int, ...]:
        return (self.request_id, self.attempt)

    def use(self) -> Use:
        """Return what it adds to the rollups, to the hour that its request's id was made in."""
        made_ms = made_at_ms(uuid.UUID(self.request_id))
        return self._use(made_ms, wasted_tokens=self.completion_tokens)


class CounterRow(msgspec.Struct, frozen=True, gc=False):
    """A row of `EngineTokenCounter`; its fields are the columns."""

    pool: str
    worker_id: str
    generated_tokens: int
    unbilled_tokens: int
    started_at: datetime
    counted_at: datetime
    is_final: bool
    recorded_at: datetime

    @property
    def key(self) -> tuple[str | int, ...]:
        return (self.pool, self.worker_id)


Row = RecordRow | WasteRow
# An entry and the row that it is to be.
Read = tuple[StreamEntry, Row]
ReadCounter = tuple[StreamEntry, CounterRow]


class _Clock:
    """When a batch is ingested, and which times its entries may have."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._latest_ms = int(now.timestamp() * 1000) + _AHEAD_MS
        oldest = months_later(month_of(now), -MONTHS_BACK)
        self._oldest_ms = int(datetime(oldest.year, oldest.month, 1, tzinfo=UTC).timestamp()) * 1000

    def check(self, made_ms: int, begun_ms: int, ended_ms: int) -> None:
        """Raise `ValueError`. `made_ms`: the time in the request id."""
        if abs(begun_ms - made_ms) > _ID_TOLERANCE_MS:
            raise ValueError(
                f"the request id was made at {_text(made_ms)}, far from the arrival at "
                f"{_text(begun_ms)}"
            )
        if begun_ms > self._latest_ms or ended_ms > self._latest_ms:
            latest_ms = max(begun_ms, ended_ms)
            raise ValueError(f"dated in the future: {_text(latest_ms)}, and it is {self.now}")
        if ended_ms < begun_ms - _AHEAD_MS:
            raise ValueError(f"ended at {_text(ended_ms)}, before it began at {_text(begun_ms)}")
        if made_ms < self._oldest_ms:
            raise ValueError(f"of {_text(made_ms)}, more than {MONTHS_BACK} months ago")


def read_entries(
    entries: Iterable[StreamEntry], now: datetime
) -> tuple[list[Read], list[ReadCounter], list[Refused]]:
    """Return rows as of now, of usage and of token counters, and what can be none."""
    clock, admission = _Clock(now), AdmissionCheck(now)
    read: list[Read] = []
    counters: list[ReadCounter] = []
    refused: list[Refused] = []
    for entry in entries:
        if entry.data is None:
            continue  # recorded and deleted by another consumer; only the receipt was left
        try:
            row = _row(entry.pool, entry.data, clock, admission)
        except Distrusted as error:
            refused.append(Refused(entry=entry, reason=first_line(error), cause=error.cause))
        except (WireFormatError, ValueError) as error:
            refused.append(Refused(entry=entry, reason=first_line(error)))
        else:
            if isinstance(row, CounterRow):
                counters.append((entry, row))
            elif row is not None:
                read.append((entry, row))
    return read, counters, refused


def _row(
    pool: str, data: bytes, clock: _Clock, admission: AdmissionCheck
) -> Row | CounterRow | None:
    """Read an entry; None is nobody's usage. Raises `ValueError` for an invalid one."""
    entry = decode_usage(data)
    if entry.pool != pool:
        raise ValueError(f"the entry names the pool {entry.pool!r}, not its stream's")
    if isinstance(entry, EngineTokenCounter):
        for at_ms in (entry.started_at_ms, entry.at_ms):
            clock.check(at_ms, at_ms, at_ms)
        return _counter_row(entry, clock.now)
    request_id = uuid.UUID(entry.request_id)
    made_ms = made_at_ms(request_id)
    if isinstance(entry, WasteEntry):
        clock.check(made_ms, made_ms, entry.ended_at_ms)
        admission.check_waste(entry, made_ms)
        return _waste_row(request_id, entry, clock.now)
    clock.check(made_ms, entry.arrived_at_ms, entry.finished_at_ms)
    admission.check(entry, made_ms)
    if not entry.is_billed:
        return None
    return _record_row(request_id, entry, clock.now)


def _record_row(request_id: uuid.UUID, entry: UsageEntry, now: datetime) -> RecordRow:
    usage, prices = entry.usage, entry.prices
    cost_nanos = actual(entry.outcome, usage, prices).nanos
    if cost_nanos > _MOST_NANOS:
        raise ValueError(f"out of range: it would cost {cost_nanos} nano-dollars")
    if not all(map(isfinite, (entry.itl_p50_ms or 0.0, entry.itl_p95_ms or 0.0))):
        raise ValueError(
            "out of range: an inter-token latency is not a finite number of milliseconds"
        )
    return RecordRow(
        request_id=str(request_id),
        tenant_id=_id(entry.tenant_id),
        project_id=_id(entry.project_id),
        api_key_id=_id(entry.api_key_id),
        tier=entry.tier,
        service_class=entry.service_class,
        pool=entry.pool,
        model=entry.model,
        adapter=entry.adapter,
        api=entry.api.value,
        stream=entry.stream,
        attempt=entry.attempt,
        worker_id=entry.worker_id,
        outcome=entry.outcome.value,
        finish_reason=entry.finish_reason,
        error_code=entry.error_code,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        wasted_tokens=entry.wasted_tokens,
        generated_tokens=entry.generated_tokens or 0,
        waste_reason=entry.waste_reason,
        price_prompt=prices.prompt,
        price_cached=prices.cached,
        price_completion=prices.completion,
        price_permille=prices.permille,
        cost_nanos=cost_nanos,
        arrived_at=moment(entry.arrived_at_ms),
        finished_at=moment(entry.finished_at_ms),
        queue_ms=entry.queue_ms,
        ttft_ms=entry.ttft_ms,
        itl_p50_ms=entry.itl_p50_ms,
        itl_p95_ms=entry.itl_p95_ms,
        adapter_version=entry.adapter_version,
        owed=entry.owed if entry.proof else None,
        labels=_labels(entry.labels),
        recorded_at=now,
    )


def _waste_row(request_id: uuid.UUID, entry: WasteEntry, now: datetime) -> WasteRow:
    return WasteRow(
        request_id=str(request_id),
        attempt=entry.attempt,
        tenant_id=_id(entry.tenant_id),
        project_id=_id(entry.project_id),
        api_key_id=_id(entry.api_key_id),
        tier=entry.tier,
        pool=entry.pool,
        model=entry.model,
        adapter=entry.adapter,
        worker_id=entry.worker_id,
        completion_tokens=entry.completion_tokens,
        generated_tokens=entry.generated_tokens or 0,
        reason=entry.reason,
        ended_at=moment(entry.ended_at_ms),
        labels=_labels(entry.labels),
        recorded_at=now,
    )


def _counter_row(entry: EngineTokenCounter, now: datetime) -> CounterRow:
    return CounterRow(
        pool=entry.pool,
        worker_id=entry.worker_id,
        generated_tokens=entry.generated_tokens,
        unbilled_tokens=entry.unbilled_tokens,
        started_at=moment(entry.started_at_ms),
        counted_at=moment(entry.at_ms),
        is_final=entry.is_final,
        recorded_at=now,
    )


def _labels(labels: dict[str, str]) -> dict[str, str] | None:
    """Return what a gateway can have chosen; None for nothing. Raises `ValueError`."""
    if not labels:
        return None
    if len(labels) > MAX_LABELS or not all(map(is_label_name, labels)):
        raise ValueError("out of range: labels that no project can have chosen")
    if any(label_value(value) != value or not value for value in labels.values()):
        raise ValueError("out of range: the value of a label is longer than any can be, or empty")
    return labels


@lru_cache(maxsize=65_536)
def _id(text: str) -> str:
    """Normalize an id as PostgreSQL writes it, cached. Raises `ValueError`."""
    return str(uuid.UUID(text))


def _text(unix_ms: int) -> str:
    try:
        return moment(unix_ms).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"


def first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
