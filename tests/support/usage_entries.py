"""What workers say of requests, the streams that they say it to, and requests on record, for tests
of what becomes of them."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec
from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Api, Envelope, Outcome, Prices, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry, WasteEntry
from inference.models import UsageRecord
from inference.usage.partitions import month_of, months_later
from inference.usage.rating.admitted import deployment_prover
from tenants.billing.models import AccountName, LedgerEntry, WaitingCharge
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey

POOL: Final = "usage-tests"
# Usage is recorded for a year: on the fifth of a month that is over, at noon.
_OVER: Final = months_later(month_of(datetime.now(UTC)), -2)
ARRIVED_MS: Final = (
    1000 * int(datetime(_OVER.year, _OVER.month, 5, 12, tzinfo=UTC).timestamp()) + 123
)

PRICED: Final = Prices(1_000_000, 500_000, 2_000_000, 900)
# 7 new, 4 cached and 7 completion tokens, at nine tenths.
COST_NANOS: Final = 20_700

NOON: Final = datetime(2026, 1, 5, 12, tzinfo=UTC)
# In the address of a log that has it.
WEEK: Final = {"since": "2026-01-04", "before": "2026-01-11"}


def usage_entry(api_key: ApiKey, at_ms: int = ARRIVED_MS, /, **changes: Any) -> UsageEntry:
    """Of a completed request that arrived `at_ms`, all of whose output one attempt generated."""
    entry = UsageEntry(
        request_id=new_request_id(at_ms),
        tenant_id=str(api_key.project.tenant_id),
        project_id=str(api_key.project_id),
        api_key_id=str(api_key.id),
        tier="premium",
        pool=POOL,
        model="penstock-demo",
        api=Api.CHAT_COMPLETIONS,
        stream=True,
        attempt=1,
        worker_id="w#1",
        outcome=Outcome.COMPLETED,
        finish_reason="stop",
        error_code=None,
        usage=TokenUsage(prompt_tokens=11, cached_tokens=4, completion_tokens=7),
        arrived_at_ms=at_ms,
        finished_at_ms=at_ms + 1333,
        queue_ms=3,
        ttft_ms=21,
    )
    entry = msgspec.structs.replace(entry, **changes)
    if "generated_tokens" not in changes:
        generated = entry.usage.completion_tokens + entry.wasted_tokens
        entry = msgspec.structs.replace(entry, generated_tokens=generated)
    return proven(entry)


def proven(entry: UsageEntry) -> UsageEntry:
    """As it is where a gateway has admitted just that, and reserved what it has used."""
    output = max(entry.usage.completion_tokens + entry.wasted_tokens, entry.generated_tokens or 0)
    entry = msgspec.structs.replace(
        entry,
        prompt_bound=entry.prompt_bound or entry.usage.prompt_tokens,
        output_bound=entry.output_bound or output,
    )
    proof = deployment_prover().prove(_envelope(entry), owed=entry.owed)
    return msgspec.structs.replace(entry, proof=proof)


def _envelope(entry: UsageEntry) -> Envelope:
    return Envelope(
        request_id=entry.request_id,
        tenant_id=entry.tenant_id,
        project_id=entry.project_id,
        api_key_id=entry.api_key_id,
        tier=entry.tier,
        gateway_id="gateway",
        pool=entry.pool,
        model=entry.model,
        api=entry.api,
        stream=entry.stream,
        body=b"{}",
        max_output_tokens=entry.output_bound,
        priority=0,
        cache_salt="",
        arrived_at_ms=entry.arrived_at_ms,
        ttft_target_ms=1000,
        max_wait_ms=1000,
        service_class=entry.service_class,
        prompt_bound=entry.prompt_bound,
        output_bound=entry.output_bound,
        is_billed=entry.is_billed,
        prices=entry.prices,
        adapter_name=entry.adapter,
        adapter_version=entry.adapter_version,
        labels=entry.labels,
    )


def waste_entry(api_key: ApiKey, **changes: Any) -> WasteEntry:
    """Of a first attempt whose worker was lost with five tokens."""
    entry = WasteEntry(
        request_id=new_request_id(ARRIVED_MS),
        attempt=1,
        tenant_id=str(api_key.project.tenant_id),
        project_id=str(api_key.project_id),
        api_key_id=str(api_key.id),
        tier="premium",
        pool=POOL,
        model="penstock-demo",
        adapter="",
        worker_id="w#1",
        completion_tokens=5,
        reason="worker_lost",
        ended_at_ms=ARRIVED_MS + 900,
        generated_tokens=5,
    )
    entry = msgspec.structs.replace(entry, **changes)
    bound = entry.output_bound or max(1, entry.completion_tokens, entry.generated_tokens or 0)
    whole = usage_entry(
        api_key,
        output_bound=bound,
        **{
            name: getattr(entry, name)
            for name in ("request_id", "tenant_id", "project_id", "api_key_id", "tier", "pool")
        },
        **{name: getattr(entry, name) for name in ("model", "adapter", "labels")},
    )
    return msgspec.structs.replace(entry, output_bound=bound, proof=whole.proof)


def append(redis: Redis, *entries: UsageEntry | WasteEntry, pool: str = POOL) -> None:
    """Put entries into the pool's stream, as workers do."""
    for entry in entries:
        field = (
            stream_fields.USAGE_FIELD
            if isinstance(entry, UsageEntry)
            else stream_fields.WASTE_FIELD
        )
        redis.xadd(keys.pool_usage(pool), {field: encode(entry)})


def waiting(redis: Redis, pool: str = POOL) -> int:
    """What is left in the stream, and what was read and not acknowledged."""
    pending = cast(
        dict[str, int], redis.xpending(keys.pool_usage(pool), stream_fields.USAGE_CONSUMER_GROUP)
    )
    return redis.xlen(keys.pool_usage(pool)) + int(pending["pending"])


def revenue(api_key: ApiKey) -> int:
    """What the key's tenant was charged, posted or waiting for that, in nano-dollars."""
    entries = LedgerEntry.objects.filter(tenant_id=api_key.tenant_id, account=AccountName.REVENUE)
    charges = WaitingCharge.objects.filter(tenant_id=api_key.tenant_id)
    return sum(each.nanos for each in charges) - sum(entry.nanos for entry in entries)


def usage_record(key: ApiKey, *, at: datetime = NOON, **changes: Any) -> UsageRecord:
    """Make the record of a completed request that arrived then."""
    fields: dict[str, Any] = {
        "request_id": new_request_id(int(at.timestamp() * 1000)),
        "tenant_id": key.tenant_id,
        "project_id": key.project_id,
        "api_key": key,
        "tier": "premium",
        "pool": "demo",
        "model": "small",
        "api": "chat.completions",
        "stream": True,
        "attempt": 1,
        "worker_id": "w#1",
        "outcome": "completed",
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "cached_tokens": 2,
        "completion_tokens": 5,
        "arrived_at": at,
        "finished_at": at + timedelta(milliseconds=900),
        "queue_ms": 20,
        "ttft_ms": 120,
        "cost_nanos": 1_000_000,
    }
    with operator_scope("test"):
        record = UsageRecord.objects.create(**(fields | changes))
        record.refresh_from_db()
        return record
