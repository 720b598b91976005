"""Keys, tenants, tiers and quotas as the policy snapshot has them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from gpu_workers.protocol.policy import (
    ApiKeyPolicy,
    KeyDigest,
    Limit,
    LimitName,
    OnSaturation,
    Scope,
    TenantPolicy,
    TierPolicy,
)
from tenants.billing.ledger.balances import spendable
from tenants.models import ApiKey, BillingMode, Quota, Tenant, Tier

_REVOKED: Final = "This API key has been revoked."
_CLOSED: Final = "This API key's organisation has been closed."
_SUSPENDED: Final = "This API key's organisation is suspended. Contact the operator of the service."


def api_key_policy(
    key: ApiKey, *, limits: list[Limit] | None = None, project_limits: list[Limit] | None = None
) -> ApiKeyPolicy:
    """Return a key's policy; asks for its quotas and its project's where they are not given. Of a
    revoked one it says so and nothing else: there is no bound to how many there are."""
    digests = [
        KeyDigest(digest=digest, expires_at_ms=_milliseconds(expires_at))
        for digest, expires_at in key.digests()
    ]
    if key.is_revoked:
        return ApiKeyPolicy(
            key_id=str(key.id),
            digests=digests,
            tenant_id=str(key.tenant_id),
            project_id=str(key.project_id),
            scopes=[],
            refusal=_REVOKED,
            has_secret=not key.is_playground,
        )
    if limits is None:
        counted = [key] if key.budget_key is None else [key, key.budget_key]
        limits = [quota_limit(quota) for each in counted for quota in each.quotas.all()]
    if project_limits is None:
        project_limits = [quota_limit(quota) for quota in key.project.quotas.all()]
    return ApiKeyPolicy(
        key_id=str(key.id),
        digests=digests,
        tenant_id=str(key.tenant_id),
        project_id=str(key.project_id),
        scopes=[Scope(scope) for scope in key.scopes],
        expires_at_ms=_milliseconds(key.expires_at),
        networks=key.allowed_networks,
        models=key.allowed_models,
        adapters=key.allowed_adapters,
        limits=limits,
        project_name=key.project.name,
        project_limits=project_limits,
        on_saturation=OnSaturation(key.project.on_saturation),
        smaller_model=key.project.smaller_model,
        has_secret=not key.is_playground,
        usage_labels=key.project.usage_labels,
        budget_key_id="" if key.budget_key_id is None else str(key.budget_key_id),
    )


def tenant_policy(
    tenant: Tenant, *, limits: list[Limit] | None = None, spendable_nanos: int | None = None
) -> TenantPolicy:
    """Return a tenant's policy; asks for its quotas, and what it may ever spend, where they are not
    given."""
    if limits is None:
        limits = [quota_limit(quota) for quota in tenant.quotas.filter(project=None, api_key=None)]
    limits = strictest(limits)
    if tenant.billing_mode == BillingMode.PREPAID:
        if spendable_nanos is None:
            spendable_nanos = spendable([tenant.id])[tenant.id]
        limits = [*limits, Limit(name=LimitName.BALANCE, value=spendable_nanos)]
    return TenantPolicy(
        tenant_id=str(tenant.id),
        name=tenant.name,
        tier=tier_policy(tenant.tier),
        limits=limits,
        refusal=_refusal(tenant),
        slug=tenant.slug,
    )


def tier_policy(tier: Tier) -> TierPolicy:
    return TierPolicy(
        name=tier.name,
        service_class=tier.service_class,
        priority=tier.priority,
        weight=tier.weight,
        ttft_target_ms=tier.ttft_target_ms,
        max_queue_seconds=tier.max_queue_seconds,
        requests_per_minute=tier.requests_per_minute,
        max_concurrent_requests=tier.max_concurrent_requests,
        default_max_output_tokens=tier.default_max_output_tokens,
        max_output_tokens=tier.max_output_tokens,
        tokens_per_minute=tier.tokens_per_minute,
        max_context_tokens=tier.max_context_tokens,
        price_multiplier_permille=int(tier.price_multiplier * 1000),
        inter_token_target_ms=tier.inter_token_target_ms,
        adapter_load_ms_per_minute=tier.max_adapter_load_seconds * 1000,
        max_websockets=tier.max_websockets,
    )


def strictest(limits: Iterable[Limit]) -> list[Limit]:
    """Return one limit of each name: of what the operator and the members of a tenant have set,
    the one that refuses, and of two the lower."""
    found: dict[LimitName, Limit] = {}
    for limit in limits:
        known = found.setdefault(limit.name, limit)
        found[limit.name] = min(known, limit, key=lambda each: (not each.is_hard, each.value))
    return list(found.values())


def quota_limit(quota: Quota) -> Limit:
    return Limit(name=LimitName(quota.limit), value=quota.value, is_hard=quota.is_hard)


def _refusal(tenant: Tenant) -> str | None:
    if tenant.is_closed:
        return _CLOSED
    return _SUSPENDED if tenant.is_suspended else None


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
