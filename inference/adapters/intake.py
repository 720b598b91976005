"""From an uploaded file to a version that answers: taken, validated in the jail, sealed, stored.

Each step is on record before the next begins, and each bears repetition: a validator that is killed
is followed by another, which a beat sees to.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, cast

import structlog
from celery import current_app
from django.db import transaction
from redis.exceptions import RedisError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterBase
from gpu_workers.protocol.sealed import SealBroken, new_salt, seal
from inference.adapters.bounds import AdapterBounds, bounds_of
from inference.adapters.lifecycle import lock_version
from inference.adapters.offboarding import ADAPTERS
from inference.adapters.validation.scratch import scratch_folder
from inference.adapters.validation.validator import validate
from inference.adapters.validation.verdicts import Accepted, Bounds, Refused
from inference.adapters.versions import (
    StoredAdapter,
    add_version,
    begin_validation,
    mark_ready,
    mark_refused,
    opaque_name,
)
from inference.blobs.errors import NoSuchBlob, room_on_disk
from inference.blobs.opening import blob_store
from inference.models.adapter import IN_PROGRESS, Adapter, AdapterVersion
from inference.models.upload import UploadPurpose
from inference.uploads.errors import NoSuchUpload
from inference.uploads.files import discard_file, read_file, take_file
from inference.usage.collector import dispatch_redis
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import DataKey, Tenant

log = structlog.get_logger(__name__)

VALIDATE: Final = "adapters.validate"
# Longer than a validation takes: whoever had it then was killed, or never heard of it.
_FORGOTTEN_AFTER: Final = timedelta(seconds=150)
# After that nobody will tell what the base is, or where the upload went.
_GIVEN_UP_AFTER: Final = timedelta(hours=6)
_CHUNK_BYTES: Final = 1024 * 1024


class ValidationDeferred(RuntimeError):
    """Nothing is wrong with the upload; it is looked at again once a worker runs."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What is known of a version before it is looked at."""

    version: AdapterVersion
    tenant: Tenant
    upload_id: uuid.UUID | None
    bounds: AdapterBounds
    pool: str


def add_uploaded_version(adapter: Adapter, file_id: str) -> AdapterVersion:
    """Make a file that was uploaded the next version of an adapter, and have it validated; within
    the tenant's scope. Raises `NoSuchUpload`, `UploadNotPending`, and `Conflict` beyond the tier's
    bounds."""
    upload = take_file(adapter.tenant, file_id, UploadPurpose.ADAPTER)
    version = add_version(adapter, upload)
    transaction.on_commit(partial(_ask_for_validation, version.pk))
    return version


def requeue_stalled_validations(now: datetime | None = None) -> int:
    """Have versions looked at that nobody looks at any more, but for those that wait for a worker,
    and refuse those that nobody could look at for hours; within an operator's scope. Return how
    many were asked for."""
    now = now or datetime.now(UTC)
    waiting = AdapterVersion.objects.filter(
        state__in=IN_PROGRESS, created_at__lt=now - _FORGOTTEN_AFTER
    )
    asked = 0
    for version in waiting.exclude(upload=None).select_related("adapter__model"):
        if version.created_at < now - _GIVEN_UP_AFTER:
            mark_refused(
                version,
                "validation_not_possible",
                "It could not be validated for hours; tell the operator, and upload it again.",
            )
            continue
        if waits_for_worker(version):
            continue
        _ask_for_validation(version.pk)
        asked += 1
    return asked


def waits_for_worker(version: AdapterVersion) -> bool:
    """Return whether its upload waits until a worker of its model has told what adapters change
    there; not so while nobody can tell."""
    try:
        return version.is_in_progress and _published_base(version.adapter.model.pool_id) is None
    except RedisError:
        return False


def validate_version(version_id: uuid.UUID) -> str:
    """Look at a version's upload, and put on record what became of it; return its state. In no
    scope. Raises `ValidationDeferred`, `ValidatorFailed`, `Unavailable` and `RedisError` where it
    is to be tried again."""
    with operator_scope("validation of an adapter"):
        version = lock_version(version_id)
        if not version.is_in_progress:
            return version.state
        version = begin_validation(version)
        tenant = version.adapter.tenant
        job = _Job(
            version=version,
            tenant=tenant,
            upload_id=version.upload_id,
            bounds=bounds_of(tenant, besides=version),
            pool=version.adapter.model.pool_id,
        )
    base = base_of(job.pool)
    try:
        return _validated(job, base)
    except Conflict:
        # It was deleted meanwhile, or another has validated it: what that one stored stays.
        with operator_scope("validation of an adapter"):
            version = lock_version(version_id)
        if not version.path:
            blob_store().delete(_path_of(job))
        return version.state


def _validated(job: _Job, base: AdapterBase) -> str:
    with room_on_disk(), scratch_folder() as folder:
        try:
            verdict = _look_at(job, base, folder)
        except (NoSuchUpload, NoSuchBlob, SealBroken) as error:
            log.warning("adapter_upload_lost", version=str(job.version.pk), reason=repr(error))
            return _refuse(job, "upload_lost", "The uploaded file is gone; upload it again.")
        if isinstance(verdict, Refused):
            where = f" ({verdict.where})" if verdict.where else ""
            return _refuse(job, verdict.code, verdict.message + where)
        return _keep(job, base, verdict)


def base_of(pool: str) -> AdapterBase:
    """Return what a pool's workers have said that adapters change. Raises `ValidationDeferred`
    while none has said so."""
    row = _published_base(pool)
    if row is None:
        raise ValidationDeferred(f"No worker of {pool} has published what its adapters change.")
    return codec.decode_adapter_base(row)


def pools_with_adapters(pools: Collection[str]) -> frozenset[str]:
    """Return those of the pools whose workers have said what adapters change; none while nobody can
    tell."""
    names = sorted(pools)
    if not names:
        return frozenset()
    try:
        with dispatch_redis() as redis:
            rows = cast("list[bytes | None]", redis.mget(map(keys.pool_adapter_base, names)))
    except RedisError:
        return frozenset()
    return frozenset(name for name, row in zip(names, rows, strict=True) if row is not None)


def _published_base(pool: str) -> bytes | None:
    with dispatch_redis() as redis:
        row = redis.get(keys.pool_adapter_base(pool))
    return row if isinstance(row, bytes) else None


def _look_at(job: _Job, base: AdapterBase, folder: Path) -> Accepted | Refused:
    archive = folder / "upload"
    with archive.open("xb") as file:
        if job.upload_id is None:
            raise NoSuchUpload
        for chunk in read_file(job.tenant, job.upload_id):
            file.write(chunk)
    defaults = Bounds()
    return validate(
        archive,
        folder,
        base,
        Bounds(
            archive_bytes=min(defaults.archive_bytes, max(1, job.version.upload_bytes)),
            adapter_bytes=min(defaults.adapter_bytes, max(1, job.bounds.stored_bytes)),
            max_rank=min(base.max_rank, job.bounds.rank),
        ),
    )


def _keep(job: _Job, base: AdapterBase, found: Accepted) -> str:
    digest = found.sha256.hex()
    path = _path_of(job)
    with operator_scope("key of an adapter"):
        key = DataKey.objects.key_of(job.tenant)
    salt = new_salt()
    stored_bytes = blob_store().put(path, seal(_chunks(found.path), key, salt=salt))
    with operator_scope("validation of an adapter"):
        version = mark_ready(
            job.version,
            StoredAdapter(
                model=job.version.adapter.model_id,
                digest=digest,
                opaque_name=opaque_name(job.tenant.id, digest),
                path=path,
                stored_bytes=stored_bytes,
                salt=salt,
                base_digest=base.digest,
                rank=found.rank,
                parameters=found.parameters,
                warnings=found.warnings,
            ),
        )
    _discard(job)
    return version.state


def _path_of(job: _Job) -> str:
    """A path of its own: what becomes of another version of the same bytes is that one's."""
    return f"{ADAPTERS}/{job.version.pk.hex}"


def _refuse(job: _Job, code: str, message: str) -> str:
    with operator_scope("validation of an adapter"):
        version = mark_refused(job.version, code, message)
    _discard(job)
    return version.state


def _discard(job: _Job) -> None:
    if job.upload_id is not None:
        with tenant_scope(job.tenant.id):
            discard_file(job.tenant, job.upload_id)


def _chunks(path: Path) -> Iterable[bytes]:
    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    return read()


def _ask_for_validation(version_id: uuid.UUID) -> None:
    """Without a broker to take it the next beat asks again."""
    try:
        current_app.send_task(VALIDATE, args=[str(version_id)])
    except Exception as error:  # noqa: BLE001 - kombu raises what its transport does
        log.warning("adapter_validation_not_asked_for", reason=repr(error))
