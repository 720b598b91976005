"""Callers with limits of their own, as the key check would make them."""

from typing import Any

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import (
    ApiKeyPolicy,
    Caller,
    Limit,
    LimitName,
    Scope,
    TenantPolicy,
    TierPolicy,
)
from inference.charges import Charge
from tests.support.gateways.service import a_tier

PRICES = Prices(1_000_000, 500_000, 2_000_000, 1000)
FREE = Charge(tokens=0, nanos=0)


def a_caller(
    tenant_id: str = "acme",
    *,
    key_id: str = "key",
    project_id: str = "project",
    tier: TierPolicy | None = None,
    tenant_limits: list[Limit] | None = None,
    **key: Any,
) -> Caller:
    return Caller(
        public_key_id=f"public-{key_id}",
        key=ApiKeyPolicy(
            key_id=key_id,
            digests=[],
            tenant_id=tenant_id,
            project_id=project_id,
            project_name="Web",
            scopes=[Scope.INFERENCE],
            **key,
        ),
        tenant=TenantPolicy(
            tenant_id=tenant_id,
            name=tenant_id.title(),
            tier=tier or a_tier(),
            limits=tenant_limits or [],
        ),
    )


def a_limit(name: LimitName, value: int, *, is_hard: bool = True) -> Limit:
    return Limit(name=name, value=value, is_hard=is_hard)


def tokens(count: int, nanos: int = 0) -> Charge:
    return Charge(tokens=count, nanos=nanos)
