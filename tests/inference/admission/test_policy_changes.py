"""A change of the policy reaches a gateway at once, and costs it no more than what changed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys, stream_fields
from gpu_workers.protocol.policy import Caller, PolicyDelta, Scope
from inference.admission.key_check import ApiKeyCheck
from inference.admission.policy_snapshot import PolicySnapshot
from inference.errors import InferenceError
from tenants import key_format
from tests.support.gateways.cast import MODEL
from tests.support.gateways.service import PEPPER, Snapshot, a_tier
from tests.support.polling import eventually


class Gateway:
    """The part of a gateway that knows the policy, and how often it asks Redis for a row."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.view = PolicySnapshot(redis)
        self.check = ApiKeyCheck(
            self.view,
            pepper=PEPPER,
            on_use=lambda public_id: None,
            on_earlier_pepper=lambda public_id, digests: None,
        )

    async def call(self, key: str) -> Caller:
        caller = await self.check.authenticate(f"Bearer {key}", None, Scope.INFERENCE)
        await self.view.models()
        return caller

    async def refuses(self, key: str) -> bool:
        try:
            await self.call(key)
        except InferenceError:
            return True
        return False

    async def look_ups(self) -> int:
        statistics: dict[str, Any] = await self.redis.info("commandstats")
        names = ("cmdstat_hget", "cmdstat_hvals")
        return sum(int(statistics.get(name, {}).get("calls", 0)) for name in names)

    async def follow(self) -> None:
        """Wait until it has read the version of this moment."""
        version = await self.redis.get(keys.policy_version())
        await eventually(lambda: self.view.version == version)


@pytest.fixture
async def gateway(dispatch_redis: Redis, snapshot: Snapshot) -> AsyncIterator[Gateway]:
    await snapshot.bump()
    gateway = Gateway(dispatch_redis)
    await gateway.view.start()
    yield gateway
    await gateway.view.stop()


@pytest.fixture
async def callers(gateway: Gateway, snapshot: Snapshot) -> list[str]:
    """Keys of eight tenants, each in use."""
    await snapshot.add_model(MODEL)
    found = [await snapshot.add_key(f"Tenant-{number}") for number in range(8)]
    await gateway.follow()
    for key in found:
        await gateway.call(key)
    return found


async def test_a_change_of_one_key_costs_others_no_look_up(
    gateway: Gateway, snapshot: Snapshot, callers: list[str]
) -> None:
    changed, *others = callers
    before = [await gateway.call(key) for key in others]
    await snapshot.put_key(changed, "Tenant-0", refusal="It was revoked.")
    await gateway.follow()
    looked_up = await gateway.look_ups()
    after = [await gateway.call(key) for key in others]
    assert await gateway.look_ups() == looked_up
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert await gateway.refuses(changed)


async def test_a_change_of_a_tenant_reaches_all_its_keys(
    gateway: Gateway, snapshot: Snapshot, callers: list[str]
) -> None:
    second = await snapshot.add_key("Tenant-3")
    await gateway.call(second)
    await snapshot.put_tenant("Tenant-3", refusal="It is suspended.")
    await gateway.follow()
    refusing = [key for key in (*callers, second) if await gateway.refuses(key)]
    assert refusing == [callers[3], second]


async def test_a_key_that_is_gone_is_refused(
    gateway: Gateway, snapshot: Snapshot, callers: list[str]
) -> None:
    await snapshot.remove_key(callers[2])
    await gateway.follow()
    assert [await gateway.refuses(key) for key in callers].count(True) == 1
    assert await gateway.refuses(callers[2])


async def test_a_change_of_the_models_is_seen(
    gateway: Gateway, snapshot: Snapshot, callers: list[str]
) -> None:
    await snapshot.add_model("org/another")
    await gateway.follow()
    assert sorted(await gateway.view.models()) == sorted([MODEL, "org/another"])


async def revoke_without_a_word(gateway: Gateway, key: str) -> None:
    policy = structs.replace((await gateway.call(key)).key, refusal="It was revoked.")
    public_id = key_format.parse(key).public_id
    await gateway.redis.hset(keys.policy_api_keys(), public_id, codec.encode(policy))


async def test_a_version_that_does_not_say_what_it_changed_may_have_changed_anything(
    gateway: Gateway, snapshot: Snapshot, callers: list[str]
) -> None:
    await revoke_without_a_word(gateway, callers[5])
    await snapshot.bump()
    # What came after it says of itself only.
    await snapshot.put_tenant("Tenant-1", tier=a_tier(weight=2))
    await gateway.follow()
    assert await gateway.refuses(callers[5])


@pytest.mark.parametrize(
    "delta",
    [
        codec.encode(PolicyDelta(base="998", version="999", tenants=["tenant-1"])),
        codec.encode(PolicyDelta(base="18", version="997", tenants=["tenant-1"])),
        b"of another wire",
    ],
    ids=["that_began_later", "that_ends_earlier", "of_another_wire"],
)
async def test_after_changes_that_do_not_lead_here_all_is_read_anew(
    gateway: Gateway, callers: list[str], delta: bytes
) -> None:
    """As by a gateway that was cut off for longer than changes are kept."""
    await revoke_without_a_word(gateway, callers[5])
    entry: Any = {stream_fields.POLICY_DELTA_FIELD: delta}
    async with gateway.redis.pipeline(transaction=True) as both:
        both.xadd(keys.policy_deltas(), entry)
        both.set(keys.policy_version(), "999")
        await both.execute()
    await gateway.follow()
    assert await gateway.refuses(callers[5])
