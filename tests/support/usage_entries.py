"""What workers say of requests, and the streams that they say it to, for tests of what becomes of
it."""

from typing import Any, Final, cast

import msgspec
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Api, Outcome, Prices, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry, WasteEntry
from tenants.billing.models import AccountName, LedgerEntry
from tenants.models import ApiKey

POOL: Final = "usage-tests"
ARRIVED_MS: Final = 1_790_000_000_123

PRICED: Final = Prices(1_000_000, 500_000, 2_000_000, 900)
# 7 new, 4 cached and 7 completion tokens, at nine tenths.
COST_NANOS: Final = 20_700


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
    if "generated_tokens" in changes:
        return entry
    generated = entry.usage.completion_tokens + entry.wasted_tokens
    return msgspec.structs.replace(entry, generated_tokens=generated)


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
    return msgspec.structs.replace(entry, **changes)


def append(redis: Redis, *entries: UsageEntry | WasteEntry, pool: str = POOL) -> None:
    """Put entries into the pool's stream, as workers do."""
    for entry in entries:
        field = keys.USAGE_FIELD if isinstance(entry, UsageEntry) else keys.WASTE_FIELD
        redis.xadd(keys.pool_usage(pool), {field: encode(entry)})


def waiting(redis: Redis, pool: str = POOL) -> int:
    """What is left in the stream, and what was read and not acknowledged."""
    pending = cast(dict[str, int], redis.xpending(keys.pool_usage(pool), keys.USAGE_CONSUMER_GROUP))
    return redis.xlen(keys.pool_usage(pool)) + int(pending["pending"])


def revenue(api_key: ApiKey) -> int:
    """What the key's tenant was charged, in nano-dollars."""
    entries = LedgerEntry.objects.filter(tenant_id=api_key.tenant_id, account=AccountName.REVENUE)
    return -sum(entry.nanos for entry in entries)
