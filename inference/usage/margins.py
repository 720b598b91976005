"""What pools earn and what they cost: margin, and cost per 1,000 tokens. Whole days (UTC)."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db.models import F, Sum

from inference.models import UsageRecord
from tenants.billing.pricing.gpu_costs import gpu_costs


@dataclass(frozen=True, kw_only=True)
class Margin:
    """Of one pool; nano-dollars. Tokens are those of prompts and outputs together."""

    pool: str
    tokens: int
    revenue_nanos: int
    gpu_ms: int
    cost_nanos: int

    @property
    def margin_nanos(self) -> int:
        return self.revenue_nanos - self.cost_nanos

    @property
    def cost_nanos_per_1k_tokens(self) -> int | None:
        """Return the cost of 1,000 tokens in nano-dollars, None where none were used."""
        return self.cost_nanos * 1000 // self.tokens if self.tokens else None


def margins(first: date, last: date) -> list[Margin]:
    """Return the margin of every pool that was used or cost something on these days, both included.
    Runs in an `operator_scope`."""
    begin = datetime.combine(first, time.min, UTC)
    end = datetime.combine(last, time.min, UTC) + timedelta(days=1)
    used = {
        pool: (int(tokens), int(nanos))
        for pool, tokens, nanos in UsageRecord.objects.filter(
            arrived_at__gte=begin, arrived_at__lt=end
        )
        .order_by()
        .values_list("pool")
        .annotate(tokens=Sum(F("prompt_tokens") + F("completion_tokens")), nanos=Sum("cost_nanos"))
    }
    spent = gpu_costs(begin, end)
    found = []
    for pool in sorted(used.keys() | spent.keys()):
        tokens, revenue_nanos = used.get(pool, (0, 0))
        gpu_ms, cost_nanos = spent.get(pool, (0, 0))
        found.append(
            Margin(
                pool=pool,
                tokens=tokens,
                revenue_nanos=revenue_nanos,
                gpu_ms=gpu_ms,
                cost_nanos=cost_nanos,
            )
        )
    return found
