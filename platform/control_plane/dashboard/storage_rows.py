"""What an organisation keeps in the store of blobs, beside what its tier allows, as rows of use."""

from dataclasses import dataclass

from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from inference.adapters.storage import Kept, storage_of
from tenants.alerts.attention import QUOTA_PERCENT
from tenants.billing.pricing.storage import storage_price
from tenants.models import Tenant
from tenants.money import dollars


@dataclass(frozen=True, kw_only=True)
class StorageRow:
    """As `LimitRow` for the template of one limit in a narrow place, of bytes."""

    name: str
    kept: Kept
    value: int
    unit: str = ""
    is_hard: bool = True

    @property
    def used(self) -> int:
        return self.kept.counted_bytes

    @property
    def percent(self) -> int:
        return self.used * 100 // self.value if self.value else 100

    @property
    def filled(self) -> int:
        return min(100, self.percent)

    @property
    def kind(self) -> str:
        """Return what the use means: good, warn or bad."""
        if self.percent >= 100:
            return "bad"
        return "warn" if self.percent >= QUOTA_PERCENT else "good"

    @property
    def short_value(self) -> str:
        return filesizeformat(self.value)

    @property
    def short_used(self) -> str:
        return filesizeformat(self.used)

    @property
    def exact(self) -> str:
        """Return all figures to the last byte."""
        return f"{self.used:,} of {self.value:,} bytes; {self.kept.stored_bytes:,} in the store"


def rows_of_storage(tenant: Tenant) -> list[StorageRow]:
    """Return a row for adapters, and one for uploads that nobody has used yet."""
    found = storage_of(tenant)
    return [
        StorageRow(name=name, kept=kept, value=kept.max_bytes or 0)
        for name, kept in (("Adapters stored", found.adapters), ("Uploads kept", found.uploads))
    ]


def storage_price_text() -> str:
    """Return what a GiB costs for a month, in dollars; empty where it costs nothing."""
    price = storage_price(timezone.now())
    micros = price.micros_per_gib_month if price else 0
    return dollars(micros * 1000) if micros else ""
