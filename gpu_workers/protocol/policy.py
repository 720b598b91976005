"""The policy snapshot: what a gateway knows of keys, tenants and models without PostgreSQL.

Written by the control plane from version rows of the same transaction, read by gateways. A key's
row holds what belongs to the key and its project, a tenant's row what all its keys share, so that
a change of tier is one row for a tenant and not one for each of its keys.
"""

from enum import StrEnum

from gpu_workers.protocol.messages import Message


class Scope(StrEnum):
    """What an API key may be used for."""

    INFERENCE = "inference"
    USAGE_READ = "usage:read"
    ADAPTERS_WRITE = "adapters:write"
    KEYS_WRITE = "keys:write"
    ADMIN = "admin"  # all of the above, and the tenant's projects, quotas and people


class LimitName(StrEnum):
    """What can be limited, at a key, a project or a tenant."""

    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    CONCURRENT_REQUESTS = "concurrent_requests"
    TOKENS_PER_DAY = "tokens_per_day"
    TOKENS_PER_MONTH = "tokens_per_month"
    SPEND_PER_MONTH = "spend_per_month"  # in nano-dollars, as those that follow
    SPEND_PER_DAY = "spend_per_day"
    # All credit that a tenant was ever given, against all that it ever spent.
    BALANCE = "balance"


# What can be set as a quota.
QUOTA_NAMES = tuple(name for name in LimitName if name is not LimitName.BALANCE)


class OnSaturation(StrEnum):
    """What happens to a project's request when the expected wait exceeds its tier's TTFT target."""

    WAIT = "wait"  # it is queued all the same, and its answer says so
    REFUSE = "refuse"  # a 429 that says when to come back
    SMALLER_MODEL = "smaller_model"  # another model answers it, at that one's price


class Capability(StrEnum):
    """What a served model can be asked for."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    TOOLS = "tools"
    JSON_SCHEMA = "json_schema"  # and every other output that a grammar constrains
    REASONING = "reasoning"
    VISION = "vision"


class Limit(Message, frozen=True):
    """One limit. A soft one is counted and alerted on, and refuses nothing."""

    name: LimitName
    value: int
    is_hard: bool = True


class TierPolicy(Message, frozen=True):
    """The limits and promises of an SLA tier, as admission enforces them.

    `price_multiplier_permille` 1000 is the list price. `max_context_tokens` bounds prompt and
    output together, whatever the model could take; None leaves it to the model. `service_class` is
    one of interactive, code, documents, batch. `inter_token_target_ms` is 0 in a snapshot of
    an earlier version. For so many ms of a minute loads of the tenant's adapters may hold engines
    up; 0 is any. `max_websockets` are those that a gateway process keeps open; None, in a snapshot
    of an earlier version, is any.
    """

    name: str
    priority: int  # vLLM's sense: smaller runs first
    weight: int
    ttft_target_ms: int
    max_queue_seconds: int
    requests_per_minute: int
    max_concurrent_requests: int
    default_max_output_tokens: int
    max_output_tokens: int
    tokens_per_minute: int | None = None
    max_context_tokens: int | None = None
    price_multiplier_permille: int = 1000
    service_class: str = "interactive"
    inter_token_target_ms: int = 0
    adapter_load_ms_per_minute: int = 0
    max_websockets: int | None = None


class TenantPolicy(Message, frozen=True, tag="tenant-1"):
    """What all keys of a tenant share. `limits` are the tenant's own, beside those of its tier;
    `refusal` is the sentence that its callers get while it is suspended; the names of its adapters
    begin with `slug` and a slash."""

    tenant_id: str
    name: str
    tier: TierPolicy
    limits: list[Limit] = []
    refusal: str | None = None
    slug: str = ""


class KeyDigest(Message, frozen=True):
    """HMAC-SHA256 of a whole key under the deployment's pepper; a rotated key has two for a while.

    `expires_at_ms` None: as long as the key itself.
    """

    digest: bytes
    expires_at_ms: int | None = None


class ApiKeyPolicy(Message, frozen=True, tag="key-2"):
    """One API key: who it stands for and what it may do.

    A revoked key stays in the snapshot with `refusal` set to the sentence that its caller gets.
    `networks` are CIDR blocks that the client's address must be in, `models` the served models
    that it may name; None means any. `smaller_model` is empty unless its project has chosen one;
    `usage_labels` are the names of labels that its project has usage recorded by. A key without a
    secret (`has_secret`) has no digests: it works by the tickets of a playground alone, and a peer
    that does not know of it refuses it. One with a `budget_key_id` counts at that key's limits,
    which `limits` hold beside its own.
    """

    key_id: str
    digests: list[KeyDigest]
    tenant_id: str
    project_id: str
    scopes: list[Scope]
    expires_at_ms: int | None = None
    networks: list[str] | None = None
    models: list[str] | None = None
    adapters: list[str] | None = None
    limits: list[Limit] = []
    project_name: str = ""
    project_limits: list[Limit] = []
    refusal: str | None = None
    on_saturation: OnSaturation = OnSaturation.WAIT
    smaller_model: str = ""
    has_secret: bool = True
    usage_labels: list[str] = []
    budget_key_id: str = ""

    @property
    def account_id(self) -> str:
        """Return the id of the key whose limits its requests count at."""
        return self.budget_key_id or self.key_id


WHOLE = 1000  # permille


class PricePolicy(Message, frozen=True):
    """Pico-dollars a token (micro-dollars per million tokens) for requests of a `tier` that use an
    `adapter`, each empty for all, and arrive from `from_ms` on and before `until_ms`. The service
    class batch pays `batch_permille` of it."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    tier: str = ""
    adapter: str = ""
    batch_permille: int = WHOLE
    from_ms: int = 0
    until_ms: int | None = None

    def holds(self, tier: str, adapter: str, at_ms: int) -> bool:
        return (
            self.tier in ("", tier)
            and self.adapter in ("", adapter)
            and self.from_ms <= at_ms
            and (self.until_ms is None or at_ms < self.until_ms)
        )


class ModelPolicy(Message, frozen=True, tag="model-2"):
    """One served model: its public name and the pool of workers that serves it.

    `tenant_ids` None means visible to every tenant. `capabilities` are words of `Capability`, and
    perhaps of a later one; a model that declares none is refused nothing. `prices` are those that
    hold and those that are to come. One that `scales_from_zero` has its workers started by the
    requests that wait for them.
    """

    name: str
    pool: str
    context_tokens: int
    created_at: int  # Unix seconds
    owned_by: str
    tenant_ids: list[str] | None = None
    capabilities: list[str] = []
    prices: list[PricePolicy] = []
    scales_from_zero: bool = False

    def supports(self, capability: Capability) -> bool:
        return not self.capabilities or capability in self.capabilities


class AdapterVersionPolicy(Message, frozen=True):
    """A version that may be asked for. `adapter` is its opaque name; `permille` its share of the
    requests that name no version."""

    number: int
    adapter: str
    permille: int = 0


class AdapterPolicy(Message, frozen=True, tag="adapter-1"):
    """One adapter: its public name, `<tenant's slug>/<slug>`, the served model that it changes, and
    its versions that are ready. Only its tenant may name it."""

    name: str
    tenant_id: str
    model: str
    created_at: int  # Unix seconds
    versions: list[AdapterVersionPolicy]


class AdapterList(Message, frozen=True, tag="adapters-1"):
    """The names of a tenant's adapters, in order. It stands among them, by `list_field`."""

    names: list[str]


def list_field(adapter_name: str) -> str:
    """Return the field of the list that has an adapter's name: all of that up to the slash, which
    is the name of none."""
    return adapter_name[: adapter_name.index("/") + 1]


class Caller(Message, frozen=True, tag="caller-2"):
    """Who a request was authenticated as; also what a one-time websocket ticket stands for.

    `proofs` are digests of the presented key: whoever asks later whether it still works compares
    them with those of the day, and never needs the key again.
    """

    public_key_id: str
    key: ApiKeyPolicy
    tenant: TenantPolicy
    proofs: list[bytes] = []

    @property
    def tenant_id(self) -> str:
        return self.tenant.tenant_id

    @property
    def tier(self) -> TierPolicy:
        return self.tenant.tier


class PolicyDelta(Message, frozen=True, tag="delta-1"):
    """What a version of the snapshot changed of the one before it: public key ids, tenant ids,
    whether models did, fields of adapters. A version without one may have changed anything."""

    base: str
    version: str
    api_keys: list[str] = []
    tenants: list[str] = []
    has_models: bool = False
    adapters: list[str] = []


def is_visible_to(model: ModelPolicy, caller: Caller) -> bool:
    """Tell whether a caller may know of a model. Unknown and forbidden are the same 404 to it."""
    if model.tenant_ids is not None and caller.tenant_id not in model.tenant_ids:
        return False
    return caller.key.models is None or model.name in caller.key.models
