"""What requests of the past are to be charged by the price book as it stands now: by a correction
where one covers the moment of arrival, the newest of them; else by the price that held then; and by
the multiplier that the tier had then.
"""

from bisect import bisect_right
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Final

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import WHOLE, PricePolicy
from inference.charges import tier_prices
from tenants.billing.models import Price, PriceCorrection, TierMultiplier

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class PriceBook:
    """The price book as it stands, in memory; without corrections, as it was when requests were
    admitted. Read in an `operator_scope`."""

    def __init__(self, *, with_corrections: bool = True) -> None:
        self._prices: defaultdict[str, list[PricePolicy]] = defaultdict(list)
        for price in Price.objects.all():
            self._prices[price.model].append(price.to_policy())
        self._corrections: defaultdict[str, list[PricePolicy]] = defaultdict(list)
        corrections = PriceCorrection.objects.order_by("-created_at")
        for correction in corrections if with_corrections else ():
            self._corrections[correction.model].append(correction.to_policy())
        self._multipliers: defaultdict[str, list[tuple[datetime, int]]] = defaultdict(list)
        for row in TierMultiplier.objects.order_by("effective_from", "id"):
            self._multipliers[row.tier].append((row.effective_from, row.permille))

    def prices(
        self, *, model: str, adapter: str, tier: str, service_class: str, at: datetime
    ) -> Prices:
        """Return what a request is to be charged at that arrived then."""
        at_ms = (at - _EPOCH) // timedelta(milliseconds=1)
        return tier_prices(
            self._holding(model, tier, adapter, at_ms),
            tier=tier,
            multiplier_permille=self._multiplier(tier, at),
            service_class=service_class,
            adapter=adapter,
            at_ms=at_ms,
        )

    def _holding(self, model: str, tier: str, adapter: str, at_ms: int) -> list[PricePolicy]:
        """Return the corrections that cover the moment, of each place the newest, and the prices of
        the places that none covers."""
        holding: dict[tuple[str, str], PricePolicy] = {}
        for price in (*self._corrections[model], *self._prices[model]):
            if price.holds(tier, adapter, at_ms):
                holding.setdefault((price.tier, price.adapter), price)
        return list(holding.values())

    def _multiplier(self, tier: str, at: datetime) -> int:
        noted = self._multipliers[tier]
        if not noted:
            return WHOLE
        # What a tier had first it had before as well: nothing older is known.
        return noted[max(0, bisect_right(noted, at, key=lambda row: row[0]) - 1)][1]
