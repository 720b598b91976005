"""Workers with adapters in a pool in virtual time, and requests that need one."""

from typing import cast

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

ONE, TWO, THREE = "one#1", "two#1", "three#1"
DISK, MEMORY, SLOT = AdapterLevel.DISK, AdapterLevel.MEMORY, AdapterLevel.SLOT


def taken(pool: VirtualPool, worker_id: str) -> list[str]:
    return [each.request_id for each in pool.inbox(worker_id)]


def join(
    pool: VirtualPool,
    worker_id: str,
    slots: int = 64,
    adapter_slots: int = 2,
    **levels: AdapterLevel,
) -> None:
    """A worker begins, with these adapters."""
    pool.register(worker_id)
    pool.post(worker_id, **levels)
    pool.claim(worker_id, slots, adapter_slots=adapter_slots)


def join_full(pool: VirtualPool, worker_id: str, **levels: AdapterLevel) -> str:
    """A worker whose one slot is taken begins; what takes it."""
    join(pool, worker_id, 1, **levels)
    plain = f"plain-{worker_id}"
    pool.enqueue(Ask(request_id=plain, tenant="plain"))
    assert taken(pool, worker_id) == [plain]
    return plain


def draining(pool: VirtualPool, worker_id: str) -> dict[str, str]:
    """The adapters that start no more requests there, and the tenants that wait for their slots."""
    key = keys.pool_worker_adapters(pool.name, worker_id)
    found = cast(dict[bytes, bytes], pool.redis.hgetall(key))
    return {
        field.decode().removeprefix("drain:"): tenant.decode()
        for field, tenant in found.items()
        if field.startswith(b"drain:")
    }


def holders(pool: VirtualPool, adapter: str) -> dict[str, int]:
    found = pool.redis.zrange(keys.pool_adapter_workers(pool.name, adapter), 0, -1, withscores=True)
    pairs = cast(list[tuple[bytes, float]], found)
    return {worker_id.decode(): int(level) for worker_id, level in pairs}


def with_adapter(name: str, adapter: str, tenant: str | None = None) -> Ask:
    return Ask(request_id=name, tenant=tenant or adapter, adapter=adapter)
