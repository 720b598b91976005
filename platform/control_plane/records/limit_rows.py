"""Limits as rows of a table: what is allowed, what of it is used now, when it is free again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from control_plane.web import figures
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import IN_NANOS, LimitStatus
from inference.operations.limit_use import use_of_quotas, use_of_tier
from tenants.alerts.attention import QUOTA_PERCENT
from tenants.models import Quota, Tenant
from tenants.money import dollars

NAMES: Final = {
    LimitName.REQUESTS_PER_MINUTE: "Requests a minute",
    LimitName.TOKENS_PER_MINUTE: "Tokens a minute",
    LimitName.CONCURRENT_REQUESTS: "Concurrent requests",
    LimitName.TOKENS_PER_DAY: "Tokens a day",
    LimitName.TOKENS_PER_MONTH: "Tokens a month",
    LimitName.SPEND_PER_DAY: "Spend a day",
    LimitName.SPEND_PER_MONTH: "Spend a month",
}
# Money, which is what a budget is of.
BUDGETS: Final = (LimitName.SPEND_PER_DAY, LimitName.SPEND_PER_MONTH)
# The others forget by themselves: their use is of the last minute, or of this moment.
PERIODIC: Final = (LimitName.TOKENS_PER_DAY, LimitName.TOKENS_PER_MONTH, *BUDGETS)
_OF_A_DAY: Final = (LimitName.TOKENS_PER_DAY, LimitName.SPEND_PER_DAY)
_UNITS: Final = {
    LimitName.REQUESTS_PER_MINUTE: "requests",
    LimitName.CONCURRENT_REQUESTS: "sequences",
}


@dataclass(frozen=True, kw_only=True)
class LimitRow:
    """`used` is None while nobody can tell; `quota` None of a limit of the tier."""

    limit: LimitName
    value: int
    used: int | None
    resets_at: datetime | None
    quota: Quota | None = None

    @property
    def name(self) -> str:
        return NAMES[self.limit]

    @property
    def percent(self) -> int | None:
        return None if self.used is None else self.used * 100 // self.value

    @property
    def filled(self) -> int:
        return min(100, self.percent or 0)

    @property
    def is_hard(self) -> bool:
        return self.quota is None or self.quota.is_hard

    @property
    def is_members(self) -> bool:
        """Return whether members may change it: all but what the operator set."""
        return self.quota is not None and (self.quota.scope != "tenant" or self.quota.is_own)

    @property
    def kind(self) -> str:
        """Return what the use means: good, warn or bad."""
        percent = self.percent or 0
        if percent >= 100:
            return "bad" if self.is_hard else "warn"
        return "warn" if percent >= QUOTA_PERCENT else "good"

    @property
    def short_value(self) -> str:
        return _short(self.limit, self.value)

    @property
    def short_used(self) -> str:
        return _short(self.limit, self.used or 0)

    @property
    def exact(self) -> str:
        """Return used and allowed to the last digit, with their unit."""
        if self.limit in IN_NANOS:
            return f"{dollars(self.used or 0)} of {dollars(self.value)}"
        unit = _UNITS.get(self.limit, "tokens")
        return f"{self.used or 0:,} of {self.value:,} {unit}"

    @property
    def unit(self) -> str:
        return "" if self.limit in IN_NANOS else _UNITS.get(self.limit, "tokens")

    @property
    def resets_word(self) -> str:
        """Say when it is free again where no moment is known."""
        if self.limit in PERIODIC:
            return "day, UTC" if self.limit in _OF_A_DAY else "month, UTC"
        return (
            "as requests end" if self.limit == LimitName.CONCURRENT_REQUESTS else "sliding minute"
        )

    @property
    def place(self) -> str:
        """Name the project or the key that it is of; the whole organisation where it is neither."""
        if self.quota is None or self.quota.scope == "tenant":
            return "the whole organisation"
        if self.quota.project is not None:
            return f"project {self.quota.project.name}"
        key = self.quota.api_key
        return "" if key is None else f"key {key.title}"

    @property
    def menu_id(self) -> str:
        return "" if self.quota is None else f"limit-{self.quota.pk}"

    @property
    def menu_label(self) -> str:
        return f"Actions for {self.name}, {self.place}"

    @property
    def alert_percents(self) -> list[int]:
        """Return at which shares people are told, of the limits that are watched for it."""
        return self.quota.alert_percents if self.quota and self.limit in PERIODIC else []


def rows_of(tenant: Tenant, quotas: Sequence[Quota]) -> list[LimitRow]:
    """Return a row for each quota, with its use now."""
    found = use_of_quotas(tenant, quotas)
    uses: Sequence[LimitStatus | None] = [None] * len(quotas) if found is None else found
    return [
        LimitRow(
            limit=LimitName(quota.limit),
            value=quota.value,
            used=None if use is None else use.used,
            resets_at=_resets_at(use),
            quota=quota,
        )
        for quota, use in zip(quotas, uses, strict=True)
    ]


def rows_of_tier(tenant: Tenant) -> list[LimitRow]:
    """Return a row for each limit of the tenant's tier, with its use now."""
    limits, found = use_of_tier(tenant)
    uses: Sequence[LimitStatus | None] = [None] * len(limits) if found is None else found
    return [
        LimitRow(
            limit=limit.name,
            value=limit.value,
            used=None if use is None else use.used,
            resets_at=_resets_at(use),
        )
        for limit, use in zip(limits, uses, strict=True)
    ]


def _resets_at(use: LimitStatus | None) -> datetime | None:
    if use is None or use.resets_at_ms is None or use.limit.name not in PERIODIC:
        return None
    return datetime.fromtimestamp(use.resets_at_ms / 1000, UTC)


def _short(limit: LimitName, value: int) -> str:
    return figures.short_dollars(value) if limit in IN_NANOS else figures.short_number(value)
