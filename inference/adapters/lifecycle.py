"""Adapters as every door makes them, points their traffic, and takes them away."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from gpu_workers.protocol.policy import WHOLE
from inference.adapters.bounds import check_adapter_count, locked_tenant
from inference.adapters.pins import check_pin_count, publish_pins_after_commit
from inference.blobs.sweep import delete_blobs
from inference.models.adapter import Adapter, AdapterState, AdapterVersion
from inference.models.catalog import ServedModel, models_visible_to
from inference.uploads.files import discard_file
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.models import Tenant

# What was admitted before an archiving may wait in a queue for its tier's time, and be handed to
# another worker after that, which has to find the weights.
DRAIN_SECONDS: Final = 600
# The code of a version that was deleted before it had been validated.
WITHDRAWN: Final = "withdrawn"


def add_adapter(tenant: Tenant, *, slug: str, model: str) -> Adapter:
    """Create an adapter of a served model, without a version yet; one that was archived begins
    anew, and its versions' numbers go on. Raises `ValidationError` that names the field, and
    `Conflict` for a taken name and beyond the tier's bound."""
    tenant = locked_tenant(tenant.pk)
    base = _base(tenant.pk, model)
    adapter = (
        Adapter.objects.select_for_update(of=("self",)).filter(tenant=tenant, slug=slug).first()
    )
    if adapter is not None and adapter.archived_at is None:
        raise Conflict("An adapter with this name already exists.", param="slug", code="name_taken")
    check_adapter_count(tenant)
    if adapter is None:
        adapter = Adapter(tenant=tenant, slug=slug, model=base)
        adapter.full_clean(validate_unique=False, validate_constraints=False)
        adapter.save(force_insert=True)
        return adapter
    adapter.archived_at, adapter.model = None, base
    adapter.save(update_fields=["archived_at", "model"])
    return adapter


def set_traffic_split(adapter: Adapter, shares: Mapping[int, int]) -> Adapter:
    """Have requests that name no version answered by one, or by two, each with its share in
    permille, 1000 together. One with all of them is a promotion as it is a roll-back. Open streams
    stay with the version that they have. Raises `ValidationError`, and `Conflict` for a version
    that is not ready."""
    if not 1 <= len(shares) <= 2 or sum(shares.values()) != WHOLE or min(shares.values()) < 1:
        raise ValidationError(
            {
                "traffic": ValidationError(
                    "Name one version with 1000, or two with shares of at least 1 that come to "
                    "1000 together.",
                    code="traffic_is_not_whole",
                )
            }
        )
    adapter = lock_adapter(adapter.pk)
    _check_ready(adapter, shares)
    # The larger share is the main version's; of equal ones the older one's.
    main, *others = sorted(shares, key=lambda number: (-shares[number], number))
    adapter.main = main
    adapter.canary = others[0] if others else None
    adapter.canary_permille = shares[others[0]] if others else None
    with audited_as(Verb.POINTED):
        adapter.save(update_fields=["main", "canary", "canary_permille"])
    if adapter.pinned_at is not None:
        publish_pins_after_commit()
    return adapter


def take_from_traffic(adapter: Adapter, number: int) -> Adapter:
    """Have a version that can answer nobody answer no request that names none: the other one of two
    gets them all; without another the adapter answers nobody until its traffic is pointed anew."""
    if not adapter.permille_of(number):
        return adapter
    adapter.main = adapter.canary if number == adapter.main else adapter.main
    adapter.canary = adapter.canary_permille = None
    with audited_as(Verb.POINTED):
        adapter.save(update_fields=["main", "canary", "canary_permille"])
    return adapter


def pin_adapter(adapter: Adapter) -> Adapter:
    """Have workers keep at hand what answers requests for an adapter, whether or not any come.
    Raises `Conflict` beyond the tier's bound, and for an adapter that is archived."""
    tenant = locked_tenant(adapter.tenant_id)
    adapter = lock_adapter(adapter.pk)
    if adapter.pinned_at is not None:
        return adapter
    if adapter.archived_at is not None:
        raise Conflict(
            f"{adapter.name} is archived; create it anew first.", code="adapter_archived"
        )
    check_pin_count(tenant)
    return _pin(adapter, Verb.PINNED, datetime.now(UTC))


def unpin_adapter(adapter: Adapter) -> Adapter:
    """Have workers keep an adapter no longer than the requests for it do."""
    adapter = lock_adapter(adapter.pk)
    return adapter if adapter.pinned_at is None else _pin(adapter, Verb.UNPINNED, None)


def archive_version(version: AdapterVersion) -> AdapterVersion:
    """Answer no new request with a version; those that are admitted end with it. Raises `Conflict`
    while traffic points at it, and where it is not ready."""
    adapter = lock_adapter(version.adapter_id)
    version = lock_version(version.pk)
    if version.state == AdapterState.ARCHIVED:
        return version
    if not version.is_ready:
        raise Conflict(
            f"{adapter.name}@{version.number} is {version.state}; only one that is ready can be "
            "archived.",
            code="version_not_ready",
        )
    if adapter.permille_of(version.number):
        raise Conflict(
            f"Requests for {adapter.name} are answered by version {version.number}; point its "
            "traffic at another one first.",
            code="version_has_traffic",
        )
    return _archived(version)


def delete_version(version: AdapterVersion, now: datetime | None = None) -> AdapterVersion:
    """Archive a version if it is ready, and delete what is stored of it once nothing can need it
    any more; one that was refused, or that nobody has validated yet, at once. Raises as
    `archive_version` does."""
    now = now or datetime.now(UTC)
    version = lock_version(version.pk)
    if version.state == AdapterState.DELETED:
        return version
    if version.is_in_progress:
        version = _withdrawn(version)
    if version.is_ready:
        version = archive_version(version)
    if version.delete_at is None:
        version.delete_at = drained_at(version) or now
        version.save(update_fields=["delete_at"])
    return version


def drained_at(version: AdapterVersion) -> datetime | None:
    """Return when nothing can need an archived version any more; None for one that nothing ever
    needed."""
    if version.archived_at is None:
        return None
    wait = version.adapter.tenant.tier.max_queue_seconds + DRAIN_SECONDS
    return version.archived_at + timedelta(seconds=wait)


def finish_deletions(now: datetime | None = None) -> int:
    """Put on record as deleted what nothing needs any more, within an operator's scope, and delete
    what is stored of it; return how many versions."""
    due = AdapterVersion.objects.filter(
        delete_at__lte=now or datetime.now(UTC),
        state__in=(AdapterState.ARCHIVED, AdapterState.REFUSED),
    )
    ids = list(due.values_list("pk", flat=True))
    paths = []
    for version_id in ids:
        version = lock_version(version_id)
        if version.path:
            paths.append(version.path)
        version.state, version.path, version.upload = AdapterState.DELETED, "", None
        version.save(update_fields=["state", "path", "upload"])
    transaction.on_commit(partial(delete_blobs, paths))
    return len(ids)


def archive_adapter(adapter: Adapter) -> Adapter:
    """Take an adapter out of service with all its versions. Its name, and the numbers that its
    versions had, stay its own."""
    adapter = lock_adapter(adapter.pk)
    if adapter.archived_at is not None:
        return adapter
    adapter.main = adapter.canary = adapter.canary_permille = None
    if adapter.pinned_at is not None:
        publish_pins_after_commit()
    adapter.archived_at, adapter.pinned_at = datetime.now(UTC), None
    with audited_as(Verb.ARCHIVED):
        adapter.save(
            update_fields=["main", "canary", "canary_permille", "archived_at", "pinned_at"]
        )
    for version in adapter.versions.filter(state=AdapterState.READY):
        _archived(lock_version(version.pk))
    return adapter


def delete_adapter(adapter: Adapter, now: datetime | None = None) -> Adapter:
    """Archive an adapter, and delete what is stored of its versions once nothing can need it any
    more."""
    adapter = archive_adapter(adapter)
    for version in adapter.versions.exclude(state=AdapterState.DELETED):
        delete_version(version, now)
    return adapter


def adapters_of(tenant_id: uuid.UUID) -> QuerySet[Adapter]:
    return Adapter.objects.filter(tenant=tenant_id).select_related("tenant")


def lock_adapter(adapter_id: uuid.UUID) -> Adapter:
    """Lock the adapter until the transaction ends, and return it as it is now."""
    return (
        Adapter.objects.select_for_update(no_key=True, of=("self",))
        .select_related("tenant__tier")
        .get(pk=adapter_id)
    )


def lock_version(version_id: uuid.UUID) -> AdapterVersion:
    """Lock the version until the transaction ends, and return it as it is now."""
    return (
        AdapterVersion.objects.select_for_update(no_key=True, of=("self",))
        .select_related("adapter__tenant__tier")
        .get(pk=version_id)
    )


def _pin(adapter: Adapter, verb: Verb, since: datetime | None) -> Adapter:
    adapter.pinned_at = since
    with audited_as(verb):
        adapter.save(update_fields=["pinned_at"])
    publish_pins_after_commit()
    return adapter


def _withdrawn(version: AdapterVersion) -> AdapterVersion:
    """Put on record that a version's upload is nobody's any more; whoever validates it finds that
    out at the end."""
    if version.upload_id is not None:
        discard_file(version.adapter.tenant, version.upload_id)
    version.state, version.upload = AdapterState.REFUSED, None
    version.refusal_code = WITHDRAWN
    version.refusal = "It was deleted before it had been validated."
    version.save(update_fields=["state", "upload", "refusal_code", "refusal"])
    return version


def _archived(version: AdapterVersion) -> AdapterVersion:
    version.state, version.archived_at = AdapterState.ARCHIVED, datetime.now(UTC)
    with audited_as(Verb.ARCHIVED):
        version.save(update_fields=["state", "archived_at"])
    return version


def _check_ready(adapter: Adapter, shares: Mapping[int, int]) -> None:
    # Locked, so that none is archived between this and the commit.
    found = adapter.versions.select_for_update(no_key=True).filter(
        number__in=shares, state=AdapterState.READY
    )
    missing = sorted(set(shares) - {version.number for version in found})
    if missing:
        raise Conflict(
            f"Version {missing[0]} of {adapter.name} is not ready to answer; name one that is.",
            code="version_not_ready",
            param="traffic",
        )


def _base(tenant_id: uuid.UUID, name: str) -> ServedModel:
    """Raises `ValidationError` for a model that the tenant may not know of, as for none."""
    if name not in {model.name for model in models_visible_to(tenant_id)}:
        unknown = ValidationError(
            f"The model {name[:200]!r} does not exist, or you have no access to it.",
            code="unknown_model",
        )
        raise ValidationError({"model": unknown})
    return ServedModel.objects.get(name=name)
