"""The life of a version before it answers: uploaded, validated, and then ready or refused."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db.models import Max

from gpu_workers.protocol.policy import WHOLE
from inference.adapters.bounds import bounds_of, check_room, locked_tenant
from inference.adapters.events import tell_refused
from inference.adapters.lifecycle import lock_adapter, lock_version, set_traffic_split
from inference.adapters.sources import publish_after_commit
from inference.adapters.validation.verdicts import WarningCode
from inference.models.adapter import (
    IN_PROGRESS,
    Adapter,
    AdapterState,
    AdapterVersion,
    VersionEffect,
)
from inference.models.upload import Upload
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audited_as

_MOST_WARNINGS: Final = 20
NOT_FINITE: Final = "answers_not_finite"
NOT_FINITE_MESSAGE: Final = (
    "Asked a few short prompts it gave log-probabilities that are not finite (NaN or infinity), so "
    "it can answer nobody. Expected are weights that the base can compute with: see that training "
    "did not diverge, lower alpha, and upload it again."
)


@dataclass(frozen=True, kw_only=True)
class StoredAdapter:
    """What validation has made of an upload for a served model, and where it lies. `digest` is the
    SHA-256 of the plain bytes in hex, `stored_bytes` how many the sealed ones at `path` are, `salt`
    what they were sealed with."""

    model: str
    digest: str
    opaque_name: str
    path: str
    stored_bytes: int
    salt: bytes
    base_digest: str
    rank: int
    parameters: int
    warnings: Sequence[str] = ()


def opaque_name(tenant_id: uuid.UUID, digest: str) -> str:
    """Return what engines and queues call a version, from the SHA-256 (hex) of what is stored."""
    return hashlib.sha256(tenant_id.bytes + bytes.fromhex(digest)).hexdigest()


def add_version(adapter: Adapter, upload: Upload) -> AdapterVersion:
    """Create the next version of an adapter, from an upload. Raises `Conflict` beyond the tier's
    bounds, and for an adapter that is archived."""
    tenant = locked_tenant(adapter.tenant_id)
    adapter = lock_adapter(adapter.pk)
    if adapter.archived_at is not None:
        raise Conflict(
            f"{adapter.name} is archived; create it anew first.", code="adapter_archived"
        )
    check_room(tenant, adapter, upload.size_bytes)
    last = adapter.versions.aggregate(last=Max("number"))["last"] or 0
    return AdapterVersion.objects.create(
        tenant=tenant,
        adapter=adapter,
        number=last + 1,
        upload=upload,
        upload_bytes=upload.size_bytes,
    )


def begin_validation(version: AdapterVersion) -> AdapterVersion:
    """Note that all bytes are there and are looked at. Bears repetition, for a validator that was
    killed. Raises `Conflict` once that has ended."""
    version = lock_version(version.pk)
    if version.state == AdapterState.VALIDATING:
        return version
    _expect(version, AdapterState.QUEUED)
    version.state = AdapterState.VALIDATING
    version.save(update_fields=["state"])
    return version


def mark_ready(version: AdapterVersion, stored: StoredAdapter) -> AdapterVersion:
    """Put a version on record as validated and stored, from now on to be asked for. The first of an
    adapter takes its traffic, later ones wait for `set_traffic_split`. One that is beyond its
    tier's bounds after all is refused. Raises `Conflict` unless it is being validated."""
    tenant = locked_tenant(version.tenant_id)
    adapter = lock_adapter(version.adapter_id)
    version = lock_version(version.pk)
    if version.is_ready and version.opaque_name == stored.opaque_name:
        return version
    _expect(version, AdapterState.VALIDATING)
    bounds = bounds_of(tenant, besides=version)
    if stored.rank > bounds.rank:
        return mark_refused(
            version,
            "rank_beyond_tier",
            f"Its rank is {stored.rank}, and tier {tenant.tier.name} allows {bounds.rank}.",
        )
    if stored.stored_bytes > bounds.stored_bytes:
        return mark_refused(
            version,
            "adapter_storage_full",
            f"It takes {stored.stored_bytes} bytes, and of what tier {tenant.tier.name} "
            f"allows {bounds.stored_bytes} are left.",
        )
    if adapter.archived_at is not None:
        return mark_refused(version, "adapter_archived", "Its adapter was archived meanwhile.")
    if adapter.model_id != stored.model:
        return mark_refused(
            version,
            "adapter_base_changed",
            f"It was looked at as an adapter of {stored.model}, and its name was meanwhile taken "
            f"for one of {adapter.model_id}. Upload it as an adapter of the model that it is of.",
        )
    effect = _effect_of(version, stored)
    if effect == VersionEffect.NOT_FINITE:
        return mark_refused(version, NOT_FINITE, NOT_FINITE_MESSAGE)
    version.effect = effect
    version.state, version.ready_at = AdapterState.READY, datetime.now(UTC)
    version.digest, version.opaque_name = stored.digest, stored.opaque_name
    version.path, version.stored_bytes = stored.path, stored.stored_bytes
    version.salt = stored.salt
    version.base_digest, version.rank = stored.base_digest, stored.rank
    version.parameters = stored.parameters
    version.warnings = list(stored.warnings)[:_MOST_WARNINGS]
    if effect == VersionEffect.NONE and WarningCode.NO_EFFECT not in version.warnings:
        version.warnings.append(WarningCode.NO_EFFECT)
    version.upload = None
    publish_after_commit(version)  # before saving, which tells gateways after the commit too
    version.save()
    if adapter.main is None:
        set_traffic_split(adapter, {version.number: WHOLE})
    return version


def mark_refused(version: AdapterVersion, code: str, message: str) -> AdapterVersion:
    """Put on record why a version can answer nobody. What was uploaded of it is nobody's from now
    on. Raises `Conflict` once it is ready."""
    version = lock_version(version.pk)
    if version.state == AdapterState.REFUSED:
        return version
    _expect(version, *IN_PROGRESS)
    version.state = AdapterState.REFUSED
    version.refusal_code, version.refusal = code[:80], message[:1000]
    version.upload = None
    with audited_as(Verb.REFUSED):
        version.save(update_fields=["state", "refusal_code", "refusal", "upload"])
    tell_refused(version)
    return version


def _effect_of(version: AdapterVersion, stored: StoredAdapter) -> str:
    """Return what is known of these bytes: by themselves, or as a version of the same has shown."""
    if WarningCode.NO_EFFECT in stored.warnings:
        return VersionEffect.NONE
    same = AdapterVersion.objects.filter(
        tenant=version.tenant_id,
        opaque_name=stored.opaque_name,
        base_digest=stored.base_digest,
    )
    known = same.exclude(effect=VersionEffect.UNKNOWN).values_list("effect", flat=True).first()
    return known or VersionEffect.UNKNOWN


def _expect(version: AdapterVersion, *states: AdapterState) -> None:
    if version.state not in states:
        wanted = " or ".join(states)
        raise Conflict(
            f"{version} is {version.state}, and was expected to be {wanted}.",
            code="version_state",
            params={"state": version.state},
        )
