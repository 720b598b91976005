"""Entries of usage streams become rows: each once, in one transaction, or are kept in quarantine.

A batch is inserted as a whole, and what was really inserted, not what came again, is charged to the
ledger and added to the rollups, in the same transaction. So an entry may come any number of times.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

import msgspec
import structlog
from django.db import DataError, IntegrityError, connection, models, transaction

from gpu_workers.protocol.codec import WireFormatError, decode_usage
from gpu_workers.protocol.messages import Outcome, UsageEntry, WasteEntry
from gpu_workers.protocol.request_id import made_at_ms
from inference.charges import actual
from inference.models import UsageQuarantine, UsageRecord, WastedAttempt
from inference.models.usage import ID_TOLERANCE
from inference.recordset import as_json, recordset
from inference.rollups import Use, add_to_rollups
from inference.usage_partitions import (
    MONTHS_BACK,
    make_partitions,
    month_of,
    months_later,
    months_present,
)
from tenants.billing.ledger import UsageCharge, post_usage
from tenants.billing.usage_source import record_time
from tenants.scoping import operator_scope

log = structlog.get_logger(__name__)

# How far ahead of ours the clock of whoever wrote an entry may be.
_AHEAD_MS: Final = 300_000
_COMPLETED: Final = Outcome.COMPLETED.value
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

    @property
    def shown_reason(self) -> str:
        """As the quarantine can hold it."""
        return self.reason.replace("\0", "")[:500]


class RecordRow(msgspec.Struct, frozen=True, gc=False):
    """A row of `UsageRecord`; its fields are the columns."""

    request_id: str
    tenant_id: str
    project_id: str
    api_key_id: str
    tier: str
    service_class: str
    pool: str
    model: str
    adapter: str
    api: str
    stream: bool
    attempt: int
    worker_id: str | None
    outcome: str
    finish_reason: str | None
    error_code: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
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
    recorded_at: datetime

    @property
    def key(self) -> tuple[str | int, ...]:
        return (self.request_id,)

    def use(self) -> Use:
        """What it adds to the rollups."""
        arrived, finished = self.arrived_at.timestamp(), self.finished_at.timestamp()
        return Use(
            tenant_id=self.tenant_id,
            project_id=self.project_id,
            api_key_id=self.api_key_id,
            model=self.model,
            adapter=self.adapter,
            tier=self.tier,
            arrived_ms=int(arrived * 1000),
            outcome=self.outcome,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=self.reasoning_tokens,
            wasted_tokens=self.wasted_tokens,
            cost_nanos=self.cost_nanos,
            ttft_ms=self.ttft_ms,
            itl_ms=self.itl_p50_ms,
            duration_ms=(
                max(0.0, finished - arrived) * 1000 if self.outcome == _COMPLETED else None
            ),
        )


class WasteRow(msgspec.Struct, frozen=True, gc=False):
    """A row of `WastedAttempt`; its fields are the columns."""

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
    reason: str
    ended_at: datetime
    recorded_at: datetime

    @property
    def key(self) -> tuple[str | int, ...]:
        return (self.request_id, self.attempt)

    def use(self) -> Use:
        """What it adds to the rollups: to the hour that its request's id was made in."""
        return Use(
            tenant_id=self.tenant_id,
            project_id=self.project_id,
            api_key_id=self.api_key_id,
            model=self.model,
            adapter=self.adapter,
            tier=self.tier,
            arrived_ms=made_at_ms(uuid.UUID(self.request_id)),
            wasted_tokens=self.completion_tokens,
        )


_Row = RecordRow | WasteRow
# An entry and the row that it is to be.
_Read = tuple[StreamEntry, _Row]


class _Table:
    """Where rows of one kind go."""

    def __init__(self, model: type[models.Model], row: type[_Row], key: Sequence[str]) -> None:
        self.row = row
        self._model = model
        self._key = key

    def insert_of(self, read: Iterable[_Read]) -> tuple[list[_Row], list[Refused]]:
        """The rows of this table among all that were read. Answers those that were not there
        before, and those that the table cannot hold."""
        return self._insert_or_part([each for each in read if isinstance(each[1], self.row)])

    def _insert_or_part(self, rows: Sequence[_Read]) -> tuple[list[_Row], list[Refused]]:
        if not rows:
            return [], []
        try:
            with transaction.atomic():
                return self._insert(rows), []
        except (DataError, IntegrityError) as error:
            # One bad value fails all of them: it is in one of the halves.
            if len(rows) == 1:
                return [], [Refused(entry=rows[0][0], reason=_first_line(error))]
            middle = len(rows) // 2
            inserted, refused = self._insert_or_part(rows[:middle])
            more_inserted, more_refused = self._insert_or_part(rows[middle:])
            return inserted + more_inserted, refused + more_refused

    def _insert(self, rows: Sequence[_Read]) -> list[_Row]:
        by_key: dict[tuple[str | int, ...], _Row] = {}
        for _entry, row in rows:
            by_key.setdefault(row.key, row)
        with connection.cursor() as cursor:
            # In one order, so that collectors that insert the same rows wait, and none for ever.
            cursor.execute(self._sql(), [as_json(by_key[key] for key in sorted(by_key))])
            return [by_key[str(key[0]), *key[1:]] for key in cursor.fetchall()]

    def _sql(self) -> str:
        columns = self.row.__struct_fields__
        names = ", ".join(columns)
        key = ", ".join(self._key)
        return (
            f"INSERT INTO {self._model._meta.db_table} ({names})"  # noqa: S608 - names of ours alone
            f" SELECT {names} FROM {recordset(self._model, columns)}"
            f" ON CONFLICT ({key}) DO NOTHING RETURNING {key}"
        )


_RECORDS: Final = _Table(UsageRecord, RecordRow, ["request_id"])
_WASTE: Final = _Table(WastedAttempt, WasteRow, ["request_id", "attempt"])


def record_entries(entries: Iterable[StreamEntry]) -> None:
    """Entries to rows, in one transaction; those that cannot be are quarantined in it."""
    with operator_scope("usage collector"):
        refused = take_in(entries)
        UsageQuarantine.objects.bulk_create(map(_quarantined, refused), ignore_conflicts=True)
    for each in refused:
        log.error(
            "usage_quarantined",
            pool=each.entry.pool,
            stream_id=each.entry.stream_id,
            reason=each.reason,
        )


def take_in(entries: Iterable[StreamEntry], now: datetime | None = None) -> list[Refused]:
    """Records, charges and sums up what can be, within an operator's scope; answers the rest."""
    read, refused = _read(entries, _Clock(now or record_time()))
    known, unknown = _of_known_keys(read)
    _make_missing_partitions(known)
    records, bad_records = _RECORDS.insert_of(known)
    waste, bad_waste = _WASTE.insert_of(known)
    add_to_rollups(row.use() for row in (*records, *waste))
    post_usage(_charges(records), batch_id=uuid.uuid4())
    return refused + unknown + bad_records + bad_waste


class _Clock:
    """When a batch is taken in, and which times its entries may tell."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._latest_ms = int(now.timestamp() * 1000) + _AHEAD_MS
        oldest = months_later(month_of(now), -MONTHS_BACK)
        self._oldest_ms = int(datetime(oldest.year, oldest.month, 1, tzinfo=UTC).timestamp()) * 1000

    def check(self, made_ms: int, begun_ms: int, ended_ms: int) -> None:
        """Raises `ValueError`. `made_ms`: the time in the request id."""
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


def _read(entries: Iterable[StreamEntry], clock: _Clock) -> tuple[list[_Read], list[Refused]]:
    read: list[_Read] = []
    refused: list[Refused] = []
    for entry in entries:
        if entry.data is None:
            continue  # recorded and deleted by another consumer; only the receipt was left
        try:
            row = _row(entry.pool, entry.data, clock)
        except (WireFormatError, ValueError) as error:
            refused.append(Refused(entry=entry, reason=_first_line(error)))
        else:
            if row is not None:
                read.append((entry, row))
    return read, refused


def _row(pool: str, data: bytes, clock: _Clock) -> RecordRow | WasteRow | None:
    """None: nobody's usage. Raises `ValueError`."""
    entry = decode_usage(data)
    if entry.pool != pool:
        raise ValueError(f"the entry names the pool {entry.pool!r}, not its stream's")
    request_id = uuid.UUID(entry.request_id)
    made_ms = made_at_ms(request_id)
    if isinstance(entry, WasteEntry):
        clock.check(made_ms, made_ms, entry.ended_at_ms)
        return _waste_row(request_id, entry, clock.now)
    if not entry.is_billed:
        return None
    clock.check(made_ms, entry.arrived_at_ms, entry.finished_at_ms)
    return _record_row(request_id, entry, clock.now)


def _record_row(request_id: uuid.UUID, entry: UsageEntry, now: datetime) -> RecordRow:
    usage, prices = entry.usage, entry.prices
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
        waste_reason=entry.waste_reason,
        price_prompt=prices.prompt,
        price_cached=prices.cached,
        price_completion=prices.completion,
        price_permille=prices.permille,
        cost_nanos=actual(entry.outcome, usage, prices).nanos,
        arrived_at=_moment(entry.arrived_at_ms),
        finished_at=_moment(entry.finished_at_ms),
        queue_ms=entry.queue_ms,
        ttft_ms=entry.ttft_ms,
        itl_p50_ms=entry.itl_p50_ms,
        itl_p95_ms=entry.itl_p95_ms,
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
        reason=entry.reason,
        ended_at=_moment(entry.ended_at_ms),
        recorded_at=now,
    )


@lru_cache(maxsize=65_536)
def _id(text: str) -> str:
    """As PostgreSQL writes it; the same few come again and again. Raises `ValueError`."""
    return str(uuid.UUID(text))


def _of_known_keys(read: list[_Read]) -> tuple[list[_Read], list[Refused]]:
    """A key proves its project and tenant: no entry is charged to another's."""
    with connection.cursor() as cursor:
        cursor.execute(_OWNERS, [list({row.api_key_id for _entry, row in read})])
        owners = {api_key: (project, tenant) for api_key, project, tenant in cursor.fetchall()}
    known: list[_Read] = []
    refused: list[Refused] = []
    for entry, row in read:
        if owners.get(row.api_key_id) == (row.project_id, row.tenant_id):
            known.append((entry, row))
        else:
            reason = f"no API key {row.api_key_id} of this project and tenant"
            refused.append(Refused(entry=entry, reason=reason))
    return known, refused


_OWNERS: Final = """
SELECT id::text, project_id::text, tenant_id::text FROM tenants_apikey WHERE id = ANY(%s::uuid[])
"""


def _make_missing_partitions(read: list[_Read]) -> None:
    """Those of entries that come long after their month, as from an outbox."""
    hours = {int(row.request_id[:8], 16) for _, row in read if isinstance(row, RecordRow)}
    # The first 32 bits of an id count 65,536 ms: no month ends within, but for its last minute.
    edges = {edge for hour in hours for edge in (hour << 16, (hour << 16) + 0xFFFF)}
    months = {month_of(_moment(edge)) for edge in edges}
    if missing := months - months_present():
        make_partitions(missing)
        log.warning("usage_partitions_made", months=sorted(map(str, missing)))


def _charges(records: Iterable[_Row]) -> list[UsageCharge]:
    """Summed by tenant, model and day of arrival (UTC)."""
    sums: defaultdict[tuple[str, str, date], list[int]] = defaultdict(lambda: [0, 0])
    for row in records:
        if isinstance(row, RecordRow) and row.cost_nanos:
            of_day = sums[row.tenant_id, row.model, row.arrived_at.date()]
            of_day[0] += row.cost_nanos
            of_day[1] += 1
    return [
        UsageCharge(
            tenant_id=uuid.UUID(tenant_id), model=model, day=day, nanos=nanos, requests=requests
        )
        for (tenant_id, model, day), (nanos, requests) in sums.items()
    ]


def _quarantined(refused: Refused) -> UsageQuarantine:
    return UsageQuarantine(
        pool=refused.entry.pool,
        stream_id=refused.entry.stream_id,
        entry=refused.entry.data or b"",
        reason=refused.shown_reason,
    )


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


def _text(unix_ms: int) -> str:
    try:
        return _moment(unix_ms).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
