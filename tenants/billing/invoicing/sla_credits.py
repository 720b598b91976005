"""What a tenant gets back for promises that were not kept in a month, of each model in each tier:

    TTFT, inter-token latency: 99 % within the tier's target.
    uptime: the tier's percentage of the month.

A shortfall is credited by the schedule (`SlaCreditStep`), in percent of what the month's usage of
the model in that tier cost. Of its promises the one with the highest credit counts: credits do not
add up, and a month's are never more than the seller's share of what it cost (`Seller`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from tenants.billing.invoicing.usage_source import Attainment, Measured
from tenants.billing.models import Promise, Seller, SlaCreditStep
from tenants.models import Tier

LATENCY_PROMISE_PERCENT: Final = Decimal(99)
_SIX_DIGITS: Final = Decimal("0.000001")

# What a new deployment starts with; data from then on.
DEFAULT_STEPS: Final = (
    (Promise.UPTIME, "0", 10),
    (Promise.UPTIME, "0.5", 25),
    (Promise.UPTIME, "4.5", 100),
    (Promise.TTFT, "0", 5),
    (Promise.TTFT, "4", 10),
    (Promise.TTFT, "9", 25),
    (Promise.INTER_TOKEN, "0", 5),
    (Promise.INTER_TOKEN, "4", 10),
    (Promise.INTER_TOKEN, "9", 25),
)


@dataclass(frozen=True, kw_only=True)
class SlaCredit:
    """One broken promise, of a model in a tier, and what it is worth."""

    tier: str
    model: str
    promise: Promise
    promised_percent: Decimal
    measured_percent: Decimal
    credit_percent: int
    credit_nanos: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The credit steps, the tiers' promises and the seller's cap, read once for a whole run."""

    tiers: dict[str, Tier]
    steps: Sequence[SlaCreditStep]
    cap_percent: int = 100

    @classmethod
    def read(cls, seller: Seller) -> "Schedule":
        return cls(
            tiers={tier.name: tier for tier in Tier.objects.all()},
            steps=list(SlaCreditStep.objects.all()),
            cap_percent=seller.sla_credit_cap_percent,
        )

    def credits(
        self, attained: Iterable[Attainment], charges_nanos: Mapping[tuple[str, str], int]
    ) -> list[SlaCredit]:
        """Return one tenant's credits for a month in order of tier and model; `charges_nanos` has
        that month's charges by both."""
        left_nanos = sum(charges_nanos.values()) * self.cap_percent // 100
        found = []
        for one in sorted(attained, key=lambda each: (each.tier, each.model)):
            credit = self._best(one, charges_nanos.get((one.tier, one.model), 0))
            if credit is not None and left_nanos > 0:
                credit = replace(credit, credit_nanos=min(credit.credit_nanos, left_nanos))
                left_nanos -= credit.credit_nanos
                found.append(credit)
        return found

    def _best(self, attained: Attainment, charge_nanos: int) -> SlaCredit | None:
        tier = self.tiers.get(attained.tier)
        if tier is None or charge_nanos <= 0:
            return None
        promises = (
            (Promise.UPTIME, tier.uptime_percent, attained.uptime),
            (Promise.TTFT, LATENCY_PROMISE_PERCENT, attained.ttft),
            (Promise.INTER_TOKEN, LATENCY_PROMISE_PERCENT, attained.inter_token),
        )
        credited = [
            self._credit(attained, promise, promised, measured, charge_nanos)
            for promise, promised, measured in promises
        ]
        return max(filter(None, credited), key=lambda credit: credit.credit_percent, default=None)

    def _credit(
        self,
        attained: Attainment,
        promise: Promise,
        promised: Decimal,
        measured: Measured,
        charge_nanos: int,
    ) -> SlaCredit | None:
        if measured.total <= 0:
            return None
        percent = Decimal(measured.percent).quantize(_SIX_DIGITS)
        shortfall = promised - percent
        reached = [
            step
            for step in self.steps
            if step.promise == promise and shortfall > 0 and shortfall >= step.shortfall_points
        ]
        if not reached:
            return None
        step = max(reached, key=lambda each: each.shortfall_points)
        return SlaCredit(
            tier=attained.tier,
            model=attained.model,
            promise=promise,
            promised_percent=promised,
            measured_percent=percent,
            credit_percent=step.credit_percent,
            # Whole nano-dollars, in the tenant's favour.
            credit_nanos=-(-charge_nanos * step.credit_percent // 100),
        )


def ensure_default_steps() -> None:
    """Create the default steps if there is no schedule yet."""
    if not SlaCreditStep.objects.exists():
        SlaCreditStep.objects.bulk_create(
            SlaCreditStep(promise=promise, shortfall_points=Decimal(points), credit_percent=percent)
            for promise, points, percent in DEFAULT_STEPS
        )
