"""What a gateway has told of requests that it refused."""

from collections import Counter
from typing import Any

import msgspec
from redis.asyncio import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import decode_refusal_batch
from gpu_workers.protocol.refusals import RefusalBatch, RefusalCount, RefusalNotice
from tests.support.gateways.service import Service


async def told(redis: Redis) -> list[RefusalBatch]:
    """The batches in Redis, the oldest first."""
    field = stream_fields.REFUSALS_FIELD.encode()
    entries: Any = await redis.xrange(keys.refusals())
    return [decode_refusal_batch(entry[field]) for _, entry in entries]


async def counted(service: Service, redis: Redis) -> list[RefusalCount]:
    """All that the gateway counted, over all its batches, in the order of codes, once it has told
    the rest; as of one hour."""
    await service.gateway.completions.admission.stop()
    sums: dict[RefusalCount, int] = {}
    for batch in await told(redis):
        for each in batch.counts:
            row = msgspec.structs.replace(each, hour=0, count=0)
            sums[row] = sums.get(row, 0) + each.count
    counts = [msgspec.structs.replace(row, count=count) for row, count in sums.items()]
    return sorted(counts, key=lambda each: (each.tenant_id, each.code, each.model))


async def noticed(service: Service, redis: Redis) -> list[RefusalNotice]:
    """The sentences that it kept, the oldest first."""
    await service.gateway.completions.admission.stop()
    return [notice for batch in await told(redis) for notice in batch.notices]


def by_code(counts: list[RefusalCount]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for each in counts:
        sums[each.code] += each.count
    return dict(sums)
