"""A hundred workers die at once: each gateway learns of its own requests, and of none twice; and
what that costs is what has died, however many gateways go on to ask."""

from typing import Any

import pytest

from gpu_workers.protocol import keys
from inference.lua_constants import WORKER_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

GATEWAYS = [f"gateway-{number}" for number in range(5)]
SLOTS, STEP_MS = 4, 500
LONG_DEAD_MS = 600_000  # of dead.lua


def start(pool: VirtualPool, workers: int) -> dict[str, set[str]]:
    """Have workers run as many requests as they can; the ids of each gateway's."""
    asked: dict[str, set[str]] = {gateway: set() for gateway in GATEWAYS}
    for worker in range(workers):
        pool.register(f"worker-{worker}#1")
        pool.claim(f"worker-{worker}#1", SLOTS)
        for slot in range(SLOTS):
            gateway = GATEWAYS[(worker + slot) % len(GATEWAYS)]
            request_id = f"r-{worker}-{slot}"
            pool.enqueue(Ask(request_id=request_id, tenant="t", gateway=gateway, seconds=600))
            asked[gateway].add(request_id)
    return asked


def die(pool: VirtualPool) -> None:
    """No worker is heard of any more, and all gateways are."""
    for _ in range(WORKER_LEASE_MS // STEP_MS):
        pool.now_ms += STEP_MS
        for gateway in GATEWAYS:
            assert pool.reap(gateway) == []
    pool.now_ms += 1


def found(pool: VirtualPool, gateway: str) -> set[str]:
    return {request_id for request_id, _ in pool.reap(gateway)}


def commands_of_a_reap(pool: VirtualPool, gateway: str) -> int:
    def count() -> int:
        told: dict[str, Any] = pool.redis.info("commandstats")
        return sum(int(each["calls"]) for each in told.values())

    before = count()
    assert pool.reap(gateway) == []
    return count() - before


def test_each_gateway_finds_its_own_of_all_that_have_died(pool: VirtualPool) -> None:
    asked = start(pool, 12)
    die(pool)
    assert {gateway: found(pool, gateway) for gateway in GATEWAYS} == asked
    # Not ended yet, they are found again.
    assert found(pool, GATEWAYS[0]) == asked[GATEWAYS[0]]
    for gateway, names in asked.items():
        for name in names:
            assert pool.finish(name, 1)
        assert found(pool, gateway) == set()


@pytest.mark.parametrize("ends", ["finish", "requeue"])
def test_those_who_ask_later_pay_nothing_for_the_dead(pool: VirtualPool, ends: str) -> None:
    def commands_after(workers: int) -> int:
        pool.redis.flushall()
        pool.redis.function_load(pool.library, replace=True)
        asked = start(pool, workers)
        die(pool)
        for gateway, names in asked.items():
            assert found(pool, gateway) == names
            for name in names:
                if ends == "finish":
                    pool.finish(name, 1)
                else:
                    pool.requeue(name, 1)
            pool.reap(gateway)
        return commands_of_a_reap(pool, GATEWAYS[0])

    assert commands_after(60) == commands_after(3)


def test_nobody_reads_the_envelopes_of_others(pool: VirtualPool) -> None:
    start(pool, 12)
    die(pool)
    pool.redis.config_resetstat()
    mine = found(pool, GATEWAYS[0])
    told: dict[str, Any] = pool.redis.info("commandstats")
    numbers_of_the_pool = 4  # that are read one by one
    assert int(told["cmdstat_hget"]["calls"]) <= len(mine) + numbers_of_the_pool


def test_a_worker_that_is_back_keeps_what_it_holds(pool: VirtualPool) -> None:
    asked = start(pool, 2)
    die(pool)
    assert found(pool, GATEWAYS[0]) == asked[GATEWAYS[0]]
    for worker in ("worker-0#1", "worker-1#1"):
        pool.claim(worker, SLOTS)
    assert {gateway: found(pool, gateway) for gateway in GATEWAYS} == {
        gateway: set() for gateway in GATEWAYS
    }
    die(pool)
    assert {gateway: found(pool, gateway) for gateway in GATEWAYS} == asked


def test_more_than_a_call_hands_out_is_found_by_the_next_ones(pool: VirtualPool) -> None:
    asked = start(pool, 300)  # 1,200 requests
    die(pool)
    seen: dict[str, set[str]] = {gateway: set() for gateway in GATEWAYS}
    for _ in range(2):
        for gateway in GATEWAYS:
            seen[gateway] |= found(pool, gateway)
    assert seen == asked


def test_what_is_handed_out_to_a_gateway_that_is_gone_does_not_stay_for_ever(
    pool: VirtualPool,
) -> None:
    start(pool, 1)
    die(pool)
    pool.reap(GATEWAYS[0])
    left = [keys.pool_gateway_lost(pool.name, gateway) for gateway in GATEWAYS[:SLOTS]]
    assert all(0 < pool.redis.pttl(key) <= 86_400_000 for key in left)
    handed_out = f"{keys.pool_prefix(pool.name)}:handed-out"
    assert pool.redis.zrange(handed_out, 0, -1) == [b"worker-0#1"]
    for slot in range(SLOTS):
        pool.finish(f"r-0-{slot}", 1)
    pool.now_ms += LONG_DEAD_MS
    pool.reap(GATEWAYS[0])
    die(pool)  # a lease after the pause it is believed
    pool.reap(GATEWAYS[0])
    assert not pool.redis.exists(handed_out)
