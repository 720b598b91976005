"""A prepaid tenant that uses, and what Redis counts of it."""

import datetime
import uuid
from typing import cast

from redis import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.policy import LimitName
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.isolation.scoping import operator_scope

DAY = datetime.date(2026, 11, 21)


def use(tenant_id: uuid.UUID, nanos: int) -> None:
    charge = UsageCharge(tenant_id=tenant_id, model="m", day=DAY, nanos=nanos, requests=1)
    with operator_scope("test"):
        post_usage([charge], batch_id=uuid.uuid4())


def told(redis: Redis, tenant_id: uuid.UUID) -> list[int]:
    """The limit that gateways read."""
    row = cast(bytes, redis.hget(keys.policy_tenants(), str(tenant_id)))
    limits = codec.decode_tenant(row).limits
    return [limit.value for limit in limits if limit.name is LimitName.BALANCE]


def reserve(redis: Redis, tenant_id: uuid.UUID, nanos: int) -> None:
    """As an open request does, in the part of the use that is about credit."""
    redis.hincrby(keys.tenant_balance(str(tenant_id)), "reserved", nanos)


def counted(redis: Redis, tenant_id: uuid.UUID) -> dict[str, int]:
    found = cast(dict[bytes, bytes], redis.hgetall(keys.tenant_balance(str(tenant_id))))
    return {name.decode(): int(nanos) for name, nanos in found.items()}
