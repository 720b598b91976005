"""What a million tokens of each model costs the tenant at this moment."""

import time
from dataclasses import dataclass

from inference.charges import prices_of
from inference.models.catalog import models_visible_to
from tenants.models import Tenant
from tenants.policy.wire import tier_policy


@dataclass(frozen=True, kw_only=True)
class PriceRow:
    """In nano-dollars for a million tokens, the tier's multiplier included."""

    model: str
    prompt: int
    cached: int
    completion: int

    @property
    def is_free(self) -> bool:
        return not (self.prompt or self.cached or self.completion)


def price_rows(tenant: Tenant) -> list[PriceRow]:
    """Return the prices of the models that the tenant can call, by name, without adapters."""
    tier, at_ms = tier_policy(tenant.tier), time.time_ns() // 1_000_000
    rows = []
    for model in sorted(models_visible_to(tenant.id), key=lambda each: each.name):
        prices = prices_of(model, tier, at_ms=at_ms)
        prompt, cached, completion = (
            # Pico-dollars a token are micro-dollars a million; the multiplier is in thousandths.
            each * prices.permille
            for each in (prices.prompt, prices.cached, prices.completion)
        )
        rows.append(PriceRow(model=model.name, prompt=prompt, cached=cached, completion=completion))
    return rows
