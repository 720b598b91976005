"""Where invoices get usage from: sums that the floor above keeps and registers, as plain data."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, NamedTuple, Protocol

from django.db import connection

# Number of a lock in PostgreSQL, ours by nobody else using it.
USAGE_LOCK: Final = 0x70656E73746F636B


class UsageGroup(NamedTuple):
    """What a line of usage is a sum over."""

    tenant_id: uuid.UUID
    period: date
    project_id: uuid.UUID
    model: str
    tier: str
    adapter: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageLine:
    """What requests of a month (UTC, by arrival; `period` is its first day) came to."""

    tenant_id: uuid.UUID
    period: date
    project_id: uuid.UUID
    model: str
    tier: str
    adapter: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_nanos: int

    @property
    def group(self) -> UsageGroup:
        return UsageGroup(
            self.tenant_id, self.period, self.project_id, self.model, self.tier, self.adapter
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageLine:
    """What a tenant kept in a month (UTC; `period` is its first day): bytes times hours, and what
    that costs."""

    tenant_id: uuid.UUID
    period: date
    byte_hours: int
    cost_nanos: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """How a promise was kept: in `kept` of `total` hours, of which there are none where too few
    requests tell."""

    kept: float
    total: float

    @property
    def percent(self) -> float:
        return 100.0 if self.total <= 0 else 100 * self.kept / self.total


@dataclass(frozen=True, kw_only=True, slots=True)
class Attainment:
    """What one tenant's requests to a model in one tier met with, of what they were owed."""

    tenant_id: uuid.UUID
    tier: str
    model: str
    ttft: Measured
    inter_token: Measured
    uptime: Measured


class UsageSource(Protocol):
    """Sums that are exact and follow the records within their own transaction."""

    def lines(
        self, tenant_ids: Sequence[uuid.UUID], first: date, last: date
    ) -> Iterable[UsageLine]:
        """Return the usage of the months from the day `first` to the day `last`, both included."""

    def storage(
        self, tenant_ids: Sequence[uuid.UUID], first: date, last: date
    ) -> Iterable[StorageLine]:
        """Return what tenants kept in these months, where that cost anything."""

    def attainment(self, tenant_ids: Sequence[uuid.UUID], period: date) -> Iterable[Attainment]:
        """Return how a month's promises were kept, by tenant, tier and model."""

    def cost_recorded_after(self, group: UsageGroup, moment: datetime) -> int:
        """Return what the records of a group cost that were written after `moment`, in
        nano-dollars."""


class _NoUsage:
    """Before a source is registered nothing was used."""

    def lines(
        self, tenant_ids: Sequence[uuid.UUID], first: date, last: date
    ) -> Iterable[UsageLine]:
        return ()

    def storage(
        self, tenant_ids: Sequence[uuid.UUID], first: date, last: date
    ) -> Iterable[StorageLine]:
        return ()

    def attainment(self, tenant_ids: Sequence[uuid.UUID], period: date) -> Iterable[Attainment]:
        return ()

    def cost_recorded_after(self, group: UsageGroup, moment: datetime) -> int:
        return 0


_source: UsageSource = _NoUsage()


def register_usage_source(source: UsageSource) -> None:
    global _source
    _source = source


def usage_source() -> UsageSource:
    return _source


def record_time() -> datetime:
    """Return the `recorded_at` for the usage that this transaction will write; call it before all
    else there. A cut (`cut_usage`) sees all records up to it, and no record before the cut comes
    later."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [USAGE_LOCK])
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone()
    return moment  # type: ignore[no-any-return]


def usage_cutoff() -> datetime:
    """Return a moment such that all records with `recorded_at` up to it are seen from here on, and
    none is added after it until this transaction ends. Whoever writes usage waits for that."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [USAGE_LOCK])
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone()
    return moment  # type: ignore[no-any-return]
