"""The policy snapshot: what a gateway knows of keys, tiers and models without PostgreSQL.

Written by the control plane from a version row of the same transaction, read by gateways.
"""

from gpu_workers.protocol.messages import Message


class TierPolicy(Message, frozen=True):
    """The limits and promises of an SLA tier, as admission enforces them."""

    name: str
    priority: int  # vLLM's sense: smaller runs first
    weight: int
    ttft_target_ms: int
    max_queue_seconds: int
    requests_per_minute: int
    max_concurrent_requests: int
    default_max_output_tokens: int
    max_output_tokens: int


class ApiKeyPolicy(Message, frozen=True, tag="key-1"):
    """One API key: who it stands for and what it may do.

    `secret_digest` is HMAC-SHA256 of the whole key under the deployment's pepper. A revoked key,
    or one of a suspended tenant, stays in the snapshot with `refusal` set to the sentence that
    its caller is told.
    """

    key_id: str
    secret_digest: bytes
    tenant_id: str
    tenant_name: str
    project_id: str
    tier: TierPolicy
    refusal: str | None = None


class ModelPolicy(Message, frozen=True, tag="model-1"):
    """One served model: its public name and the pool of workers that serves it.

    `tenant_ids` None means visible to every tenant.
    """

    name: str
    pool: str
    context_tokens: int
    created_at: int  # Unix seconds
    owned_by: str
    tenant_ids: list[str] | None = None


class Caller(Message, frozen=True, tag="caller-1"):
    """Who a request was authenticated as; also what a one-time websocket ticket stands for."""

    key_id: str
    tenant_id: str
    project_id: str
    tier: TierPolicy
    tenant_name: str = ""
    public_key_id: str = ""


def is_visible_to(model: ModelPolicy, tenant_id: str) -> bool:
    """Whether a tenant may know of a model. Unknown and forbidden are the same 404 to a caller."""
    return model.tenant_ids is None or tenant_id in model.tenant_ids
