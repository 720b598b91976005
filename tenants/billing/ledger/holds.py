"""Holds: credit that no request can reserve while it is taken back."""

import time
import uuid
from typing import cast

from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from tenants.billing.ledger.balances import spendable
from tenants.policy_redis import policy_redis


def new_withdrawal() -> str:
    """The id of one; begins with its time in ms."""
    return f"{time.time_ns() // 1_000_000}:{uuid.uuid4()}"


def set_aside(tenant_id: uuid.UUID, withdrawal: str, nanos: int) -> int:
    """Keeps credit from being spent while it is taken back; returns how much, which is less where
    requests have reserved it. Needs the `operator_scope`; raises `RedisError`."""
    prefix, most = keys.tenant_prefix(str(tenant_id)), spendable([tenant_id])[tenant_id]
    with policy_redis().pipeline(transaction=False) as pipeline:
        pipeline.exists(keys.policy_version())
        pipeline.sadd(keys.tenants_with_reservations(), str(tenant_id))
        pipeline.fcall(keys.FUNCTION_WITHDRAW, 1, prefix, withdrawal, str(nanos), str(most))
        has_policy, _, kept = pipeline.execute()
    if not has_policy:
        let_go(tenant_id, withdrawal)
        raise RedisError("Redis has lost what tenants have reserved; ask again in a moment.")
    return cast(int, kept)


def release_withdrawals(older_than_seconds: int = 600) -> int:
    """Lets go of what a process that died kept; returns how many. Its booking, if it came to that,
    has reached the tenant's limit since."""
    redis, released = policy_redis(), 0
    oldest_ms = time.time_ns() // 1_000_000 - older_than_seconds * 1000
    for tenant in cast(set[bytes], redis.smembers(keys.tenants_with_reservations())):
        tenant_id = uuid.UUID(tenant.decode())
        for field in cast(list[bytes], redis.hkeys(keys.tenant_balance(str(tenant_id)))):
            kind, _, withdrawal = field.decode().partition(":")
            if kind == "withdrawal" and int(withdrawal.partition(":")[0]) < oldest_ms:
                let_go(tenant_id, withdrawal)
                released += 1
    return released


def let_go(tenant_id: uuid.UUID, withdrawal: str) -> None:
    """The withdrawal is booked and shows in the tenant's limit, or was given up."""
    prefix = keys.tenant_prefix(str(tenant_id))
    policy_redis().fcall(keys.FUNCTION_WITHDRAWN, 1, prefix, withdrawal)
