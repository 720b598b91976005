"""What a tenant's people can try out, with what it costs them: served models and their adapters."""

import time
from dataclasses import dataclass

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import AdapterPolicy, Capability, ModelPolicy
from inference.adapters.policy_rows import adapter_policies
from inference.charges import prices_of
from inference.models.catalog import models_visible_to
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant
from tenants.policy.wire import tier_policy


@dataclass(frozen=True, kw_only=True)
class PlaygroundOffer:
    """`prices` are those of this moment at the tenant's tier, in pico-dollars a token and a
    permille of them."""

    name: str
    base: str
    prices: Prices

    @property
    def is_adapter(self) -> bool:
        return self.name != self.base


def offers_of(tenant: Tenant) -> list[PlaygroundOffer]:
    """Return what can chat: models by name, then adapters that answer without a version."""
    models = {model.name: model for model in models_visible_to(tenant.id)}
    chat = {name: model for name, model in models.items() if model.supports(Capability.CHAT)}
    offers = [_offer(name, model, tenant) for name, model in sorted(chat.items())]
    for adapter in _adapters(tenant):
        if adapter.model in chat:
            offers.append(_offer(adapter.name, chat[adapter.model], tenant, adapter=adapter.name))
    return offers


def _adapters(tenant: Tenant) -> list[AdapterPolicy]:
    with operator_scope("adapters to try out"):
        found = [
            policy
            for policy in adapter_policies([f"{tenant.slug}/"])
            if policy.tenant_id == str(tenant.id)
            and any(version.permille for version in policy.versions)
        ]
    return sorted(found, key=lambda policy: policy.name)


def _offer(name: str, model: ModelPolicy, tenant: Tenant, *, adapter: str = "") -> PlaygroundOffer:
    at_ms = time.time_ns() // 1_000_000
    return PlaygroundOffer(
        name=name,
        base=model.name,
        prices=prices_of(model, tier_policy(tenant.tier), adapter=adapter, at_ms=at_ms),
    )
