"""Entries of usage streams become rows: each once, in one transaction, or are kept in quarantine.

A batch is inserted as a whole, and what was really inserted, not what came again, is charged to the
ledger and added to the rollups, in the same transaction. So an entry may come any number of times.
"""

import traceback
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Final

import structlog
from django.db import DataError, IntegrityError, connection, models, transaction
from django.db import Error as DatabaseFailure

from inference.models import UsageQuarantine, UsageRecord, WastedAttempt
from inference.usage.engine_counters import store_counters
from inference.usage.partitions import make_partitions, month_of, months_present
from inference.usage.recordset import as_json, recordset
from inference.usage.rollups import add_to_rollups
from inference.usage.rows import (
    Read,
    RecordRow,
    Refused,
    Row,
    StreamEntry,
    WasteRow,
    first_line,
    moment,
    read_entries,
)
from tenants.billing.invoicing.usage_source import record_time
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.isolation.scoping import operator_scope

log = structlog.get_logger(__name__)


class _Table:
    """Where rows of one kind go."""

    def __init__(self, model: type[models.Model], row: type[Row], key: Sequence[str]) -> None:
        self.row = row
        self._model = model
        self._key = key

    def insert_of(self, read: Iterable[Read]) -> tuple[list[Row], list[Refused]]:
        """Return the rows of this table among all that were read. Return those that were not there
        before, and those that the table cannot hold."""
        # In one order, so that collectors that insert the same rows wait, and none for ever.
        own = sorted((each for each in read if isinstance(each[1], self.row)), key=_key)
        return self._insert_or_split(own)

    def _insert_or_split(self, rows: Sequence[Read]) -> tuple[list[Row], list[Refused]]:
        if not rows:
            return [], []
        try:
            with transaction.atomic():
                return self._insert(rows), []
        except (DataError, IntegrityError) as error:
            # One bad value fails all of them: it is in one of the halves.
            if len(rows) == 1:
                return [], [Refused(entry=rows[0][0], reason=first_line(error))]
            middle = len(rows) // 2
            inserted, refused = self._insert_or_split(rows[:middle])
            more_inserted, more_refused = self._insert_or_split(rows[middle:])
            return inserted + more_inserted, refused + more_refused

    def _insert(self, rows: Sequence[Read]) -> list[Row]:
        by_key: dict[tuple[str | int, ...], Row] = {}
        for _entry, row in rows:
            by_key.setdefault(row.key, row)
        with connection.cursor() as cursor:
            cursor.execute(self._sql(), [as_json(by_key.values())])
            if cursor.rowcount == len(by_key):
                return list(by_key.values())
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


def _key(read: Read) -> tuple[str | int, ...]:
    return read[1].key


_RECORDS: Final = _Table(UsageRecord, RecordRow, ["request_id"])
_WASTE: Final = _Table(WastedAttempt, WasteRow, ["request_id", "attempt"])


def record_entries(entries: Iterable[StreamEntry]) -> None:
    """Record entries as rows in one transaction; invalid ones are quarantined in it."""
    with operator_scope("usage collector"):
        refused = sorted(ingest(entries), key=lambda each: each.entry.stream_id)
        UsageQuarantine.objects.bulk_create(map(_quarantined, refused), ignore_conflicts=True)
    for each in refused:
        log.error(
            "usage_quarantined",
            pool=each.entry.pool,
            stream_id=each.entry.stream_id,
            reason=each.reason,
        )


def ingest(entries: Iterable[StreamEntry], now: datetime | None = None) -> list[Refused]:
    """Record, charge and sum up what can be, in an operator's scope; return the rest."""
    return _ingest_or_split(list(entries), now or record_time())


def _ingest_or_split(entries: Sequence[StreamEntry], now: datetime) -> list[Refused]:
    """Ingest entries by halves, the last resort: whatever one entry breaks, the others are
    ingested. What is wrong with the database is raised, as it is wrong for all of them and passes.
    So is a deadlock, which two that ingest halves may come to: tenants are in order within a half
    only."""
    try:
        with transaction.atomic():
            return _ingest_batch(entries, now)
    except Exception as error:
        is_of_database = isinstance(error, DatabaseFailure)
        if is_of_database and not isinstance(error, DataError | IntegrityError):
            raise
        if len(entries) <= 1:
            return [Refused(entry=entry, reason=_unforeseen(error)) for entry in entries]
    middle = len(entries) // 2
    return _ingest_or_split(entries[:middle], now) + _ingest_or_split(entries[middle:], now)


def _unforeseen(error: Exception) -> str:
    """Return what was raised, and where; not its message, which may quote the entry."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"unforeseen {type(error).__name__} in {place.name}, line {place.lineno}"


def _ingest_batch(entries: Iterable[StreamEntry], now: datetime) -> list[Refused]:
    read, counters, refused = read_entries(entries, now)
    known, unknown = _of_known_keys(read)
    _make_missing_partitions(known)
    records, bad_records = _RECORDS.insert_of(known)
    waste, bad_waste = _WASTE.insert_of(known)
    add_to_rollups(row.use() for row in (*records, *waste))
    post_usage(_charges(records), batch_id=uuid.uuid4())
    return refused + unknown + bad_records + bad_waste + store_counters(counters)


def _of_known_keys(read: list[Read]) -> tuple[list[Read], list[Refused]]:
    """Check that a key proves its project and tenant: no entry is charged to another's."""
    with connection.cursor() as cursor:
        cursor.execute(_OWNERS, [list({row.api_key_id for _entry, row in read})])
        owners = {api_key: (project, tenant) for api_key, project, tenant in cursor.fetchall()}
    known: list[Read] = []
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


def _make_missing_partitions(read: list[Read]) -> None:
    """Make partitions for entries that come long after their month, as from an outbox."""
    hours = {int(row.request_id[:8], 16) for _, row in read if isinstance(row, RecordRow)}
    # The first 32 bits of an id count 65,536 ms: no month ends within, but for its last minute.
    edges = {edge for hour in hours for edge in (hour << 16, (hour << 16) + 0xFFFF)}
    months = {month_of(moment(edge)) for edge in edges}
    if missing := months - months_present():
        make_partitions(missing)
        log.warning("usage_partitions_made", months=sorted(map(str, missing)))


def _charges(records: Iterable[Row]) -> list[UsageCharge]:
    """Sum charges by tenant, model and day of arrival (UTC)."""
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
