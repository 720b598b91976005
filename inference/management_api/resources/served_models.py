"""GET models: what the tenant can call. Others do not exist for it."""

import time
from typing import Any, ClassVar

from rest_framework.response import Response

from gpu_workers.protocol.policy import WHOLE, ModelPolicy, TierPolicy
from inference.charges import half_even, prices_of
from inference.management_api.callers import KeyBearer
from inference.management_api.lists import listed
from inference.management_api.view import TenantView
from inference.models.catalog import models_visible_to
from tenants.pagination import Page
from tenants.permissions import Permission
from tenants.policy.wire import tier_policy


class ModelsView(TenantView):
    """The catalogue is an operator's, and short: one page."""

    permissions: ClassVar = {"GET": Permission.VIEW}

    def get(self) -> Response:
        models = models_visible_to(self.tenant.id)
        if isinstance(self.caller, KeyBearer) and self.caller.key.allowed_models is not None:
            models = [model for model in models if model.name in self.caller.key.allowed_models]
        tier = tier_policy(self.tenant.tier)
        return listed(Page(rows=models, next_cursor=None), lambda model: _rendered(model, tier))


def _rendered(model: ModelPolicy, tier: TierPolicy) -> dict[str, Any]:
    """Render a model with the current prices of the tenant's tier, without an adapter."""
    prices = prices_of(model, tier, at_ms=time.time_ns() // 1_000_000)
    return {
        "object": "model",
        "id": model.name,
        "owned_by": model.owned_by,
        "context_tokens": model.context_tokens,
        "capabilities": model.capabilities,
        "price_micros_per_million_tokens": {
            "prompt": half_even(prices.prompt * prices.permille, WHOLE),
            "cached": half_even(prices.cached * prices.permille, WHOLE),
            "completion": half_even(prices.completion * prices.permille, WHOLE),
        },
    }
