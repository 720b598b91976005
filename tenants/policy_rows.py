"""The rows of the policy snapshot, made from PostgreSQL: all of them, or those a change touched."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from django.db.models import Prefetch, Q, QuerySet

from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.policy import ModelPolicy
from tenants.models import ApiKey, PolicyChange, PolicyPart, Quota, Tenant

_CHUNK = 2000

# Field of a hash in Redis, and the encoded row.
PolicyRow = tuple[str, bytes]
ModelSource = Callable[[], Iterable[ModelPolicy]]
_model_sources: list[ModelSource] = []


def register_model_source(source: ModelSource) -> None:
    """Say where served models come from. The catalogue stands on a floor above this one, so it
    registers itself when its app is ready."""
    if source not in _model_sources:
        _model_sources.append(source)


@dataclass(frozen=True, kw_only=True)
class TouchedRows:
    """What is to be written, by public key id and by tenant id, where None means that the row has
    to go. `models` are all of them, or None where none changed."""

    api_keys: dict[str, bytes | None] = field(default_factory=dict)
    tenants: dict[str, bytes | None] = field(default_factory=dict)
    models: dict[str, bytes] | None = None


def touched_rows(changes: Iterable[PolicyChange]) -> TouchedRows:
    """The rows that the changes reach, as they are now. Runs in an `operator_scope`."""
    ids: dict[str, set[str]] = {part: set() for part in PolicyPart}
    touches_models = False
    for change in changes:
        ids[change.part].update(change.row_ids)
        touches_models = touches_models or change.part == PolicyPart.MODELS
    api_keys: dict[str, bytes | None] = dict.fromkeys(ids[PolicyPart.API_KEYS])
    tenants: dict[str, bytes | None] = dict.fromkeys(ids[PolicyPart.TENANTS])
    if api_keys or ids[PolicyPart.PROJECTS]:
        wanted = Q(public_id__in=api_keys) | Q(project__in=ids[PolicyPart.PROJECTS])
        api_keys.update(api_key_rows(ApiKey.objects.filter(wanted)))
    if tenants or ids[PolicyPart.TIERS]:
        of_tenants = Q(id__in=tenants) | Q(tier__in=ids[PolicyPart.TIERS])
        tenants.update(tenant_rows(Tenant.objects.filter(of_tenants)))
    return TouchedRows(
        api_keys=api_keys,
        tenants=tenants,
        models=dict(model_rows()) if touches_models else None,
    )


def api_key_rows(api_keys: "QuerySet[ApiKey] | None" = None) -> Iterator[PolicyRow]:
    wanted = ApiKey.objects.all() if api_keys is None else api_keys
    parts = wanted.select_related("project").prefetch_related("quotas", "project__quotas")
    for key in parts.order_by().iterator(chunk_size=_CHUNK):
        yield key.public_id, encode(key.to_policy())


def tenant_rows(tenants: "QuerySet[Tenant] | None" = None) -> Iterator[PolicyRow]:
    wanted = Tenant.objects.all() if tenants is None else tenants
    own = Prefetch("quotas", Quota.objects.filter(project=None, api_key=None))
    parts = wanted.select_related("tier").prefetch_related(own)
    for tenant in parts.order_by().iterator(chunk_size=_CHUNK):
        yield str(tenant.id), encode(tenant.to_policy())


def model_names_of(tenant_id: str) -> set[str]:
    """The models that a tenant may name. Runs in an `operator_scope`."""
    return {
        model.name
        for source in _model_sources
        for model in source()
        if model.tenant_ids is None or tenant_id in model.tenant_ids
    }


def model_rows() -> Iterator[PolicyRow]:
    for source in _model_sources:
        for model in source():
            yield model.name, encode(model)
