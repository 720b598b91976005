"""The rows of the policy snapshot, made from PostgreSQL: all, or those that a change affects."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.policy import AdapterList, AdapterPolicy, Limit, ModelPolicy, list_field
from tenants.billing.ledger.balances import spendable
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, BillingMode, PolicyChange, PolicyPart, Quota, Tenant
from tenants.policy.wire import api_key_policy, quota_limit, tenant_policy

_CHUNK = 2000
_Row = TypeVar("_Row", bound=Model)

# Field of a hash in Redis, and the encoded row.
PolicyRow = tuple[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """What can be called and where it runs. It stands on a floor above this one, so its app
    registers it when it is ready. `adapters` is given what names begin with, up to the slash, or
    None for all."""

    models: Callable[[], Iterable[ModelPolicy]]
    pools: Callable[[], Iterable[str]]
    adapters: Callable[[Collection[str] | None], Iterable[AdapterPolicy]]


_catalogues: list[Catalogue] = []


def register_catalogue(catalogue: Catalogue) -> None:
    if catalogue not in _catalogues:
        _catalogues.append(catalogue)


@dataclass(frozen=True, kw_only=True)
class AffectedRows:
    """What is to be written, by public key id, by tenant id and by field of the adapters, where
    None means that the row has to go. `models` are all of them, or None where none changed; `pools`
    are to be known beside those that are."""

    api_keys: dict[str, bytes | None] = field(default_factory=dict)
    tenants: dict[str, bytes | None] = field(default_factory=dict)
    adapters: dict[str, bytes | None] = field(default_factory=dict)
    models: dict[str, bytes] | None = None
    pools: tuple[str, ...] = ()


def affected_rows(changes: Iterable[PolicyChange]) -> AffectedRows:
    """Return the rows that the changes reach, as they are now. Runs in an `operator_scope`."""
    ids: dict[str, set[str]] = {part: set() for part in PolicyPart}
    affects_models = False
    for change in changes:
        ids[change.part].update(change.row_ids)
        affects_models = affects_models or change.part == PolicyPart.MODELS
    api_keys: dict[str, bytes | None] = dict.fromkeys(ids[PolicyPart.API_KEYS])
    tenants: dict[str, bytes | None] = dict.fromkeys(ids[PolicyPart.TENANTS])
    if api_keys or ids[PolicyPart.PROJECTS]:
        changed = ApiKey.objects.filter(public_id__in=api_keys).values("id")
        wanted = Q(public_id__in=api_keys) | Q(project__in=ids[PolicyPart.PROJECTS])
        # The quotas of a key stand in the rows of all that count into them.
        wanted |= Q(budget_key__in=changed)
        api_keys.update(api_key_rows(ApiKey.objects.filter(wanted)))
    if tenants or ids[PolicyPart.TIERS]:
        of_tenants = Q(id__in=tenants) | Q(tier__in=ids[PolicyPart.TIERS])
        tenants.update(tenant_rows(Tenant.objects.filter(of_tenants)))
    return AffectedRows(
        api_keys=api_keys,
        tenants=tenants,
        adapters=_affected_adapters(ids[PolicyPart.ADAPTERS]),
        models=dict(model_rows()) if affects_models else None,
        pools=pool_names() if affects_models else (),
    )


def api_key_rows(api_keys: "QuerySet[ApiKey] | None" = None) -> Iterator[PolicyRow]:
    wanted = ApiKey.objects.all() if api_keys is None else api_keys
    # Quotas come in a query for many keys, not by prefetch: that makes a queryset for each key,
    # which is half of the time that the whole snapshot takes.
    for chunk in _chunks(wanted.select_related("project").order_by()):
        counted = {key.id for key in chunk} | {key.budget_key_id for key in chunk}
        own = _limits(Quota.objects.filter(api_key__in=counted - {None}), "api_key_id")
        projects = {key.project_id for key in chunk}
        of_projects = _limits(Quota.objects.filter(project__in=projects), "project_id")
        for key in chunk:
            row = api_key_policy(
                key,
                limits=own[key.id] + (own[key.budget_key_id] if key.budget_key_id else []),
                project_limits=of_projects[key.project_id],
            )
            yield key.public_id, encode(row)


def tenant_rows(tenants: "QuerySet[Tenant] | None" = None) -> Iterator[PolicyRow]:
    wanted = Tenant.objects.all() if tenants is None else tenants
    whole = Quota.objects.filter(project=None, api_key=None)
    for chunk in _chunks(wanted.select_related("tier").order_by()):
        limits = _limits(whole.filter(tenant__in=[tenant.id for tenant in chunk]), "tenant_id")
        prepaid = [each.id for each in chunk if each.billing_mode == BillingMode.PREPAID]
        nanos = spendable(prepaid)
        for tenant in chunk:
            policy = tenant_policy(
                tenant, limits=limits[tenant.id], spendable_nanos=nanos.get(tenant.id)
            )
            yield str(tenant.id), encode(policy)


def unavailable_models(tenant_id: uuid.UUID, names: Iterable[str]) -> list[str]:
    """Return the names of which the tenant may call no model, in order."""
    # Behind its walls a tenant sees no other's visibility: what is for another would look as if it
    # were for everybody.
    with operator_scope("models that a tenant may name"):
        available = {
            model.name
            for catalogue in _catalogues
            for model in catalogue.models()
            if model.tenant_ids is None or str(tenant_id) in model.tenant_ids
        }
    return sorted(set(names) - available)


def model_rows() -> Iterator[PolicyRow]:
    for catalogue in _catalogues:
        for model in catalogue.models():
            yield model.name, encode(model)


def pool_names() -> tuple[str, ...]:
    return tuple(name for catalogue in _catalogues for name in catalogue.pools())


def adapter_rows() -> Iterator[PolicyRow]:
    lists: defaultdict[str, list[str]] = defaultdict(list)
    for adapter in _adapters(None):
        lists[list_field(adapter.name)].append(adapter.name)
        yield adapter.name, encode(adapter)
    for prefix, names in lists.items():
        yield prefix, encode(AdapterList(names=sorted(names)))


def _affected_adapters(changed: Collection[str]) -> dict[str, bytes | None]:
    """Return the rows of these adapters, and the lists that have them, or had."""
    lists: dict[str, list[str]] = {list_field(name): [] for name in changed}
    rows: dict[str, bytes | None] = dict.fromkeys([*changed, *lists])
    if not rows:
        return rows
    for adapter in _adapters(lists):
        lists[list_field(adapter.name)].append(adapter.name)
        if adapter.name in rows:
            rows[adapter.name] = encode(adapter)
    rows.update(
        {prefix: encode(AdapterList(names=sorted(has))) for prefix, has in lists.items() if has}
    )
    return rows


def _adapters(prefixes: Collection[str] | None) -> Iterator[AdapterPolicy]:
    for catalogue in _catalogues:
        yield from catalogue.adapters(prefixes)


def _limits(quotas: "QuerySet[Quota]", place: str) -> defaultdict[uuid.UUID, list[Limit]]:
    found: defaultdict[uuid.UUID, list[Limit]] = defaultdict(list)
    for quota in quotas:
        found[getattr(quota, place)].append(quota_limit(quota))
    return found


def _chunks(rows: "QuerySet[_Row]") -> Iterator[list[_Row]]:
    remaining = rows.iterator(chunk_size=_CHUNK)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
