"""What Celery does for inference; `control_plane/celery.py` says when."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

from celery import Task, shared_task
from django.conf import settings
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol.redis_url import connect_async
from inference.adapters import intake, lifecycle
from inference.adapters.observed import note_what_workers_say
from inference.adapters.sources import blob_key_of, sync_sources
from inference.adapters.validation.verdicts import ValidatorFailed
from inference.admission import reservations
from inference.blobs.opening import blob_store
from inference.blobs.sweep import sweep_blobs
from inference.dispatch import abandoned
from inference.dispatch.worker_registry import PoolWorker, WorkerRegistry
from inference.errors import InferenceError
from inference.models import DeadLetter, Gateway, IdempotentCall, Worker
from inference.models.adapter import AdapterState
from inference.operations import dead_letters
from inference.operations.dead_letters import Letter
from inference.operations.gateway_registry import expire_unread_frames, live_gateways
from inference.operations.pool_identity import copy_identities
from inference.operations.resync import load_missing_functions
from inference.pools import read_known_pools
from inference.refusals import collecting
from inference.uploads import digests
from inference.uploads.expiry import expire_uploads
from inference.usage.collector import dispatch_redis
from inference.usage.partitions import make_partitions_ahead
from inference.usage.pools.dealt_days import deal_out_days
from inference.usage.rating.admitted import deployment_prover
from inference.usage.rating.storage_hours import note_storage
from tenants.isolation.scoping import operator_scope

_T = TypeVar("_T")


@shared_task(name="inference.restore_functions", expires=5)  # type: ignore[untyped-decorator]
def restore_functions() -> int:
    """Give the functions back to a Redis that restarted empty, which gateways and workers may not;
    returns how many libraries it lacked."""
    with dispatch_redis() as redis:
        return load_missing_functions(redis)


@shared_task(name="inference.sweep_reservations", expires=10)  # type: ignore[untyped-decorator]
def sweep_reservations() -> int:
    """Settle what requests reserved that are no more; returns how many."""
    return _on_dispatch_redis(reservations.sweep)


@shared_task(name="inference.end_abandoned_requests", expires=10)  # type: ignore[untyped-decorator]
def end_abandoned_requests() -> int:
    """End the requests of gateways that died; returns how many."""
    return _on_dispatch_redis(abandoned.end_abandoned)


@shared_task(name="inference.make_usage_partitions", expires=3600)  # type: ignore[untyped-decorator]
def make_usage_partitions() -> int:
    """Make the usage table's partitions of the months to come; returns how many were missing."""
    with operator_scope("usage partitions"):
        return make_partitions_ahead()


@shared_task(name="inference.deal_out_days", expires=3600)  # type: ignore[untyped-decorator]
def deal_out_costs() -> int:
    """Deal the GPU costs of days that are over out to tenants; returns how many days."""
    return deal_out_days()


@shared_task(name="inference.note_storage", expires=600)  # type: ignore[untyped-decorator]
def note_stored_adapters() -> int:
    """Put on record what tenants keep in this hour; returns for how many."""
    return note_storage()


@shared_task(name="inference.forget_idempotent_calls", expires=3600)  # type: ignore[untyped-decorator]
def forget_idempotent_calls() -> int:
    """Forget the calls of the management API that can no longer be repeated; returns how many."""
    with operator_scope("deletion of old idempotent calls"):
        return IdempotentCall.objects.forget_old()


@shared_task(name="inference.expire_uploads", expires=300)  # type: ignore[untyped-decorator]
def end_late_uploads() -> int:
    """End uploads that were not completed, or used, in time; returns how many."""
    with operator_scope("end of late uploads"):
        return expire_uploads()


@shared_task(name="inference.sync_adapters", expires=20)  # type: ignore[untyped-decorator]
def sync_adapters() -> int:
    """Tell workers where adapters are, with addresses that hold, and take away what nothing needs;
    returns how many addresses were written."""
    with operator_scope("addresses of adapters"):
        lifecycle.finish_deletions()
    with dispatch_redis() as redis, operator_scope("addresses of adapters"):
        return sync_sources(redis, sign=blob_store().signed_url, key_of=blob_key_of)


@shared_task(name="inference.note_adapters_on_workers", expires=5)  # type: ignore[untyped-decorator]
def note_adapters_on_workers() -> int:
    """Put on record what workers say of adapters; returns of how many versions."""
    with dispatch_redis() as redis:
        return note_what_workers_say(redis)


@shared_task(  # type: ignore[untyped-decorator]
    bind=True,
    name=intake.VALIDATE,
    autoretry_for=(ValidatorFailed, InferenceError, RedisError),
    retry_backoff=2,
    retry_backoff_max=30,
    max_retries=5,
)
def validate_adapter(self: Task, version_id: str) -> str:
    """Validate an uploaded version of an adapter; returns its state. Of its own queue, `adapters`:
    a large one takes seconds."""
    try:
        return intake.validate_version(uuid.UUID(version_id))
    except intake.ValidationDeferred as error:
        # A worker that starts has told within the minute; of a later one the beat hears.
        if self.request.retries == self.max_retries:
            return AdapterState.VALIDATING
        raise self.retry(exc=error, countdown=2 << self.request.retries) from None


@shared_task(name="adapters.requeue_stalled_validations", expires=50)  # type: ignore[untyped-decorator]
def ask_for_forgotten_adapters() -> int:
    """Have uploads validated that nobody looks at any more; returns how many."""
    with operator_scope("uploads of adapters"):
        return intake.requeue_stalled_validations()


@shared_task(  # type: ignore[untyped-decorator]
    name=digests.COMPUTE,
    expires=digests.LONGEST_SECONDS,
    time_limit=digests.LONGEST_SECONDS,
    soft_time_limit=digests.LONGEST_SECONDS - 30,
)
def compute_digest(tenant_id: str, upload_id: str, part_ids: list[str]) -> None:
    """Compute the MD5 of an upload's parts in this order, for whoever completes it."""
    digests.compute_md5(
        uuid.UUID(tenant_id), uuid.UUID(upload_id), [uuid.UUID(each) for each in part_ids]
    )


@shared_task(name="inference.sweep_blobs", expires=3600)  # type: ignore[untyped-decorator]
def sweep_orphan_blobs() -> int:
    """Delete blobs that are on no record; returns how many."""
    with operator_scope("sweep of blobs"):
        return sweep_blobs()


@shared_task(name="inference.copy_workers", expires=10)  # type: ignore[untyped-decorator]
def copy_workers() -> int:
    """Copy the registry of workers into the table that operators see, and what pools serve; returns
    how many live."""
    seen = _on_dispatch_redis(_registered_workers)
    live = [worker.info for worker in seen if worker.is_live]
    silent = [worker.info.worker_id for worker in seen if not worker.is_live]
    with operator_scope("copy of the worker registry"):
        Worker.objects.sync(live, silent=silent)
    with dispatch_redis() as redis, operator_scope("what pools serve"):
        copy_identities(redis)
    return len(live)


@shared_task(name="inference.copy_gateways", expires=10)  # type: ignore[untyped-decorator]
def copy_gateways() -> int:
    """Note which gateways live, unless Redis has lost it; returns how many."""
    with dispatch_redis() as redis:
        live = live_gateways(redis)
    if live is None:
        return 0
    with operator_scope("copy of the gateways"):
        Gateway.objects.sync(live)
    return len(live)


@shared_task(name="inference.expire_unread_frames", expires=60)  # type: ignore[untyped-decorator]
def expire_frames_of_dead_gateways() -> int:
    """Give what nobody will read an end; returns how many lists of frames that were."""
    with dispatch_redis() as redis:
        return expire_unread_frames(redis)


@shared_task(name="inference.collect_refusals", expires=5)  # type: ignore[untyped-decorator]
def collect_refusals() -> int:
    """Add up what gateways have refused; returns how many requests."""
    return collecting.collect_refusals()


@shared_task(name="inference.copy_dead_letters", expires=10)  # type: ignore[untyped-decorator]
def copy_dead_letters() -> int:
    """Copy the dead letters, without payload, into the table that operators see; returns how
    many."""
    with dispatch_redis() as redis:
        dead_letters.forget_old(redis)
        letters = dead_letters.kept_letters(redis)
    with operator_scope("copy of the dead letters"):
        DeadLetter.objects.sync(letter.facts() for letter in letters)
    return len(letters)


@shared_task(name="inference.retry_dead_letter")  # type: ignore[untyped-decorator]
def retry_dead_letter(request_id: str) -> str:
    """Run one once more, note how it ended, and discard it if that was well."""
    with dispatch_redis() as redis:
        letter = dead_letters.letter_of(redis, request_id)
        end = "not kept any more" if letter is None else _run_again(redis, letter)
    with operator_scope("retry of a dead letter"):
        DeadLetter.objects.note_retry(request_id, end)
    return end


def _run_again(redis: SyncRedis, letter: Letter) -> str:
    try:
        url = settings.PENSTOCK_DISPATCH_REDIS_URL
        terminal = asyncio.run(dead_letters.run_again(url, letter, deployment_prover()))
    except InferenceError as error:
        return f"not run: {error.to_wire().code}"
    if terminal.error is not None:
        return f"{terminal.outcome.value}: {terminal.error.code}"
    dead_letters.discard(redis, letter)
    return terminal.outcome.value


async def _registered_workers(redis: Redis) -> list[PoolWorker]:
    registry = WorkerRegistry(redis)
    pools = await read_known_pools(redis)
    return [worker for pool in pools for worker in await registry.workers(pool)]


def _on_dispatch_redis(work: Callable[[Redis], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        async with connect_async(settings.PENSTOCK_DISPATCH_REDIS_URL, socket_timeout=10) as redis:
            return await work(redis)

    return asyncio.run(run())
