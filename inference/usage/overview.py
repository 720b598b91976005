"""How a tenant has fared over some days beside those before, and where its month is heading, by the
rollups. Call it inside the tenant's scope. Days are UTC, both ends included."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from django.db.models import Min, Sum

from gpu_workers.protocol.policy import LimitName
from inference.histograms import Histogram, HistogramField
from inference.models import DailyTenantUsage
from inference.models.rollup import COUNTERS
from inference.usage.attainment import attainment
from inference.usage.reports import quantiles
from inference.usage.rollups import ERRORS, HISTOGRAMS
from tenants.access.quotas import quotas_of_whole
from tenants.billing.invoicing.sla_credits import LATENCY_PROMISE_PERCENT
from tenants.billing.invoicing.usage_source import Measured
from tenants.billing.models import Promise
from tenants.billing.periods import last_day, month_before, month_of
from tenants.models import Tenant, Tier

_WEEKS: Final = 4
FORECAST_RULE: Final = (
    "What was spent until yesterday, and for today and each day left the mean of the same weekday "
    "over the last four weeks; for today at least what it has cost. With less than a week of usage "
    "the mean of its days."
)
_LATENCIES: Final = {
    "ttft": "ttft_histogram",
    "inter_token": "itl_histogram",
    "queue": "queue_histogram",
}


class Days(NamedTuple):
    """A range of days."""

    first: date
    last: date

    @classmethod
    def of_month(cls, today: date) -> "Days":
        return cls(month_of(today), today)

    @property
    def before(self) -> "Days":
        """Return the days to compare with: of a month so far the same days of the month before, as
        far as it has them; else as many days just before."""
        month = month_of(self.first)
        if self.first == month and self.last <= last_day(month):
            first = month_before(month)
            return Days(first, min(first + (self.last - self.first), last_day(first)))
        length = self.last - self.first
        return Days(self.first - length - timedelta(days=1), self.first - timedelta(days=1))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """How a promise was kept for a model in a tier, as invoices have it."""

    tier: str
    model: str
    promise: Promise
    promised_percent: Decimal
    measured: Measured

    @property
    def is_kept(self) -> bool:
        return Decimal(self.measured.percent) >= self.promised_percent


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of some days. `latencies_ms` has p50, p95 and p99 by name, `ttft`, `inter_token` and `queue`:
    None where nothing was measured. `attainment` leaves out what nothing is known of."""

    days: Days
    cost_nanos: int
    tokens: int
    requests: int
    errors: int
    latencies_ms: Mapping[str, Mapping[str, float | None]]
    attainment: Sequence[Kept]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where the month is heading. `forecast_nanos` is what it will have cost by `FORECAST_RULE`,
    None where there is nothing to tell from; `budget_nanos` None where there is none."""

    spent_nanos: int
    forecast_nanos: int | None
    budget_nanos: int | None

    @property
    def is_over_budget(self) -> bool:
        """Return whether the forecast exceeds the budget."""
        forecast = self.forecast_nanos or self.spent_nanos
        return self.budget_nanos is not None and forecast > self.budget_nanos


def figures(days: Days, *, now: datetime) -> Figures:
    """Return the figures of the open scope's tenant. Of a day that runs, uptime counts the hours so
    far."""
    tiers = _by_tier(days)
    counted = {name: sum(int(row[name]) for row in tiers) for name in COUNTERS}
    return Figures(
        days=days,
        cost_nanos=counted["cost_nanos"],
        tokens=counted["prompt_tokens"] + counted["completion_tokens"],
        requests=counted["requests"],
        errors=sum(counted[outcome] for outcome in ERRORS),
        latencies_ms={
            name: quantiles(sum((row[column] or Histogram() for row in tiers), Histogram()))
            for name, column in _LATENCIES.items()
        },
        attainment=_attainment(days, now),
    )


def standing(tenant: Tenant, today: date) -> Standing:
    """Return where a tenant's month is heading, against its own budget."""
    days = Days.of_month(today)
    costs = _costs(min(days.first, today - timedelta(weeks=_WEEKS)), today)
    spent = sum(nanos for day, nanos in costs.items() if day >= days.first)
    budgets = [each for each in quotas_of_whole(tenant) if each.limit == LimitName.SPEND_PER_MONTH]
    return Standing(
        spent_nanos=spent,
        forecast_nanos=_forecast(costs, today),
        budget_nanos=min((each.value for each in budgets), default=None),
    )


def _costs(first: date, last: date) -> dict[date, int]:
    rows = (
        DailyTenantUsage.objects.filter(day__gte=first, day__lte=last)
        .order_by()
        .values("day")
        .annotate(nanos=Sum("cost_nanos"))
    )
    return {row["day"]: int(row["nanos"]) for row in rows}


def _forecast(costs: Mapping[date, int], today: date) -> int | None:
    """Return `FORECAST_RULE` in nano-dollars, rounded half to even."""
    window = today - timedelta(weeks=_WEEKS)
    oldest: date | None = DailyTenantUsage.objects.aggregate(oldest=Min("day"))["oldest"]
    if oldest is None or not any(window <= day < today for day in costs):
        return None
    first = max(window, oldest)
    known = [first + timedelta(days=number) for number in range((today - first).days)]
    by_weekday = {
        weekday: _mean([costs.get(day, 0) for day in known if day.weekday() == weekday])
        for weekday in {day.weekday() for day in known}
    }
    if len(by_weekday) < 7:
        of_all = _mean([costs.get(day, 0) for day in known])
        by_weekday = dict.fromkeys(range(7), of_all)
    month = Days(month_of(today), last_day(month_of(today)))
    spent = sum(nanos for day, nanos in costs.items() if month.first <= day < today)
    of_today = max(Fraction(costs.get(today, 0)), by_weekday[today.weekday()])
    left = [today + timedelta(days=number) for number in range(1, (month.last - today).days + 1)]
    return round(spent + of_today + sum(by_weekday[day.weekday()] for day in left))


def _mean(costs: Sequence[int]) -> Fraction:
    return Fraction(sum(costs), len(costs))


def _by_tier(days: Days) -> list[dict[str, Any]]:
    """Return what was used in each tier: `COUNTERS` and `HISTOGRAMS`."""
    rows: Iterable[Any] = (
        DailyTenantUsage.objects.filter(day__gte=days.first, day__lte=days.last)
        .order_by("tier")
        .values("tier")
        .annotate(
            **{name: Sum(name) for name in COUNTERS},
            **{name: Sum(name, output_field=HistogramField()) for name in HISTOGRAMS},
        )
    )
    return list(rows)


def _attainment(days: Days, now: datetime) -> list[Kept]:
    begin = datetime.combine(days.first, time.min, UTC)
    end = min(datetime.combine(days.last, time.min, UTC) + timedelta(days=1), now)
    used = DailyTenantUsage.objects.filter(day__gte=days.first, day__lte=days.last)
    tenant_ids = list(used.order_by().values_list("tenant_id", flat=True).distinct())
    tiers = {tier.name: tier for tier in Tier.objects.all()}
    found: list[Kept] = []
    for attained in attainment(tenant_ids, begin, end):
        tier = tiers.get(attained.tier)
        if tier is None:
            continue
        found += [
            Kept(
                tier=tier.name,
                model=attained.model,
                promise=promise,
                promised_percent=percent,
                measured=measured,
            )
            for promise, percent, measured in (
                (Promise.TTFT, LATENCY_PROMISE_PERCENT, attained.ttft),
                (Promise.INTER_TOKEN, LATENCY_PROMISE_PERCENT, attained.inter_token),
                (Promise.UPTIME, tier.uptime_percent, attained.uptime),
            )
            if measured.total
        ]
    return found
