"""Entries of usage streams become rows: each once, in one transaction, or are kept in quarantine.

A batch is inserted as a whole, and what was really inserted, not what came again, is charged and
added to the rollups, in the same transaction. So an entry may come any number of times. Charges
wait to be posted to the ledger, a minute at most.
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
from msgspec.structs import replace

from inference.models import UsageQuarantine, UsageRecord, WastedAttempt
from inference.models.usage import QuarantineCause
from inference.usage.engine_counters import store_counters
from inference.usage.labels import add_to_label_usage
from inference.usage.partitions import make_partitions, moment, month_of, months_present
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
    read_entries,
)
from tenants.billing.invoicing.usage_source import record_time
from tenants.billing.ledger.posting import UsageCharge
from tenants.billing.ledger.waiting import charge_usage, post_due
from tenants.isolation.scoping import operator_scope
from tenants.offboarding.closing import hold_open

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
    """Record entries as rows in one transaction; invalid ones are quarantined in it. Then post what
    has waited for a minute."""
    with operator_scope("usage collector"):
        refused = sorted(ingest(entries), key=lambda each: each.entry.stream_id)
        UsageQuarantine.objects.bulk_create(map(_quarantined, refused), ignore_conflicts=True)
    for each in refused:
        log.error(
            "usage_quarantined",
            request_id=each.request_id,
            pool=each.entry.pool,
            stream_id=each.entry.stream_id,
            cause=each.cause.value,
            reason=each.reason,
        )
    try:
        post_due()
    except DatabaseFailure as error:
        # The entries are on record, and the scheduler posts as well.
        log.warning("usage_not_posted", error=type(error).__name__)


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
    known = _without_labels_of_the_closed(known)
    _make_missing_partitions(known)
    records, bad_records = _RECORDS.insert_of(known)
    repeated = _larger_repeats(known, records)
    waste, bad_waste = _WASTE.insert_of(known)
    charge_usage(_charges(records))
    bad_counters = store_counters(counters)
    uses = [(row.use(), row.labels) for row in (*records, *waste)]
    add_to_label_usage((use, labels) for use, labels in uses if labels)
    add_to_rollups(use for use, _ in uses)
    return refused + unknown + bad_records + repeated + bad_waste + bad_counters


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


def _larger_repeats(read: list[Read], inserted: list[Row]) -> list[Refused]:
    """Return those of the records read that were not inserted and claim to have cost more than what
    is on record. Others came again, as entries do, or from where a lost Redis let one request have
    two ends: the first stands."""
    new = set(map(id, inserted))
    again = [
        (entry, row) for entry, row in read if isinstance(row, RecordRow) and id(row) not in new
    ]
    if not again:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_ON_RECORD, [list({row.request_id for _, row in again})])
        recorded = dict(cursor.fetchall())
    return [
        Refused(
            entry=entry,
            cause=QuarantineCause.REPEATED,
            reason=f"on record with {recorded[row.request_id]} nano-dollars, and it claims "
            f"{row.cost_nanos}",
        )
        for entry, row in again
        if row.cost_nanos > recorded.get(row.request_id, row.cost_nanos)
    ]


_ON_RECORD: Final = """
SELECT request_id::text, cost_nanos FROM inference_usagerecord WHERE request_id = ANY(%s::uuid[])
"""


def _without_labels_of_the_closed(read: list[Read]) -> list[Read]:
    tenants = {row.tenant_id for _, row in read if row.labels}
    closed = tenants - hold_open(tenants) if tenants else set()
    return [
        (entry, replace(row, labels=None) if row.labels and row.tenant_id in closed else row)
        for entry, row in read
    ]


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
        cause=refused.cause,
    )
