"""Entries of usage streams become rows: each once, in one transaction, or are kept in quarantine.

An entry that comes again finds its request id taken, and changes nothing.
"""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from django.db import DataError, IntegrityError, transaction

from gpu_workers.protocol.codec import WireFormatError, decode_usage_entry
from gpu_workers.protocol.messages import UsageEntry
from inference.models import UsageQuarantine, UsageRecord
from tenants.models import ApiKey
from tenants.scoping import operator_scope

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamEntry:
    """An entry as it was read. `data` is None if it has gone from the stream since."""

    pool: str
    stream_id: str
    data: bytes | None


def record_entries(entries: list[StreamEntry]) -> None:
    """Entries to records, in one transaction; those that cannot be are quarantined."""
    with operator_scope("usage collector"):
        records, quarantined = _sort(entries)
        try:
            with transaction.atomic():
                UsageRecord.objects.bulk_create(
                    [record for _entry, record in records], ignore_conflicts=True
                )
        except (DataError, IntegrityError, ValueError):
            quarantined += _record_singly(records)
        UsageQuarantine.objects.bulk_create(quarantined, ignore_conflicts=True)
    for row in quarantined:
        log.error("usage_quarantined", pool=row.pool, stream_id=row.stream_id, reason=row.reason)


def _sort(
    entries: list[StreamEntry],
) -> tuple[list[tuple[StreamEntry, UsageRecord]], list[UsageQuarantine]]:
    records: list[tuple[StreamEntry, UsageRecord]] = []
    quarantined: list[UsageQuarantine] = []
    for entry in entries:
        if entry.data is None:
            continue  # recorded and deleted by another consumer; only the receipt was left
        try:
            usage = decode_usage_entry(entry.data)
            if usage.is_billed:
                records.append((entry, _to_record(entry.pool, usage)))
        except (WireFormatError, ValueError, OverflowError, OSError) as error:
            quarantined.append(_quarantine(entry, _first_line(error)))
    owners = _owners({record.api_key_id for _entry, record in records})
    known: list[tuple[StreamEntry, UsageRecord]] = []
    for entry, record in records:
        if owners.get(record.api_key_id) == (record.project_id, record.tenant_id):
            known.append((entry, record))
        else:
            reason = f"no API key {record.api_key_id} of this project and tenant"
            quarantined.append(_quarantine(entry, reason))
    return known, quarantined


def _record_singly(records: list[tuple[StreamEntry, UsageRecord]]) -> list[UsageQuarantine]:
    """One bad value fails a whole batch: find it, and record the others."""
    quarantined: list[UsageQuarantine] = []
    for entry, record in records:
        try:
            with transaction.atomic():
                UsageRecord.objects.bulk_create([record], ignore_conflicts=True)
        except (DataError, IntegrityError, ValueError) as error:
            quarantined.append(_quarantine(entry, _first_line(error)))
    return quarantined


def _to_record(pool: str, usage: UsageEntry) -> UsageRecord:
    if usage.pool != pool:
        raise ValueError(f"the entry names the pool {usage.pool!r}, not its stream's")
    return _record_of(usage)


def _record_of(usage: UsageEntry) -> UsageRecord:
    return UsageRecord(
        request_id=uuid.UUID(usage.request_id),
        tenant_id=uuid.UUID(usage.tenant_id),
        project_id=uuid.UUID(usage.project_id),
        api_key_id=uuid.UUID(usage.api_key_id),
        tier=usage.tier,
        pool=usage.pool,
        model=usage.model,
        api=usage.api.value,
        stream=usage.stream,
        attempt=usage.attempt,
        worker_id=usage.worker_id,
        outcome=usage.outcome.value,
        finish_reason=usage.finish_reason,
        error_code=usage.error_code,
        prompt_tokens=usage.usage.prompt_tokens,
        cached_tokens=usage.usage.cached_tokens,
        completion_tokens=usage.usage.completion_tokens,
        arrived_at=datetime.fromtimestamp(usage.arrived_at_ms / 1000, UTC),
        finished_at=datetime.fromtimestamp(usage.finished_at_ms / 1000, UTC),
        queue_ms=usage.queue_ms,
        ttft_ms=usage.ttft_ms,
    )


def _owners(api_key_ids: set[uuid.UUID]) -> dict[uuid.UUID, tuple[uuid.UUID, uuid.UUID]]:
    rows = ApiKey.objects.filter(id__in=api_key_ids).values_list("id", "project_id", "tenant_id")
    return {api_key: (project, tenant) for api_key, project, tenant in rows}


def _quarantine(entry: StreamEntry, reason: str) -> UsageQuarantine:
    return UsageQuarantine(
        pool=entry.pool,
        stream_id=entry.stream_id,
        entry=entry.data or b"",
        reason=reason.replace("\0", "")[:500],
    )


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
