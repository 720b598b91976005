"""Which keys work, from where and for what; each refusal says why."""

import time
from dataclasses import replace
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import clock, keys
from gpu_workers.protocol.policy import KeyDigest, Scope
from inference.admission import key_activity
from inference.admission.gate import Admission
from inference.errors import Forbidden, InferenceError, Unauthenticated
from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.gateway import create_gateway
from tenants import key_format
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import PEPPER, Service, Snapshot, serving
from tests.support.polling import eventually

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
EARLIER_PEPPER = b"earlier-pepper-of-the-gateway-tests-0123"
HERE = "127.0.0.1"


@pytest.fixture
async def admission(dispatch_redis: Redis, snapshot: Snapshot) -> Any:
    await snapshot.bump()
    admission = Admission(dispatch_redis, pepper=PEPPER, previous_peppers=(EARLIER_PEPPER,))
    await admission.start()
    yield admission
    await admission.stop()


def pass_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the process believe that its Redis is a minute further."""
    later, now_ns = clock.SharedClock(), time.monotonic_ns()
    later.note((clock.now_ms() // 1000 + 61, 0), asked_ns=now_ns, answered_ns=now_ns)
    monkeypatch.setattr(clock, "CLOCK", later)


async def refused(
    admission: Admission, key: str, *, address: str | None = HERE, scope: Scope | None = None
) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        await admission.authenticate(f"Bearer {key}", address=address, scope=scope)
    return caught.value


async def works(
    admission: Admission, key: str, *, address: str | None = HERE, scope: Scope | None = None
) -> bool:
    caller = await admission.authenticate(f"Bearer {key}", address=address, scope=scope)
    return caller.public_key_id == key_format.parse(key).public_id


async def commands(redis: Redis) -> int:
    """How many look-ups Redis has done."""
    statistics: dict[str, Any] = await redis.info("commandstats")
    return int(statistics.get("cmdstat_hget", {}).get("calls", 0))


async def test_a_mistyped_key_costs_no_look_up(service: Service, dispatch_redis: Redis) -> None:
    mistyped = service.alice[:-1] + ("0" if service.alice[-1] != "0" else "1")
    before = await commands(dispatch_redis)
    async with service.client(mistyped) as client:
        answer = await client.get("/v1/models")
    assert answer.status_code == 401
    assert await commands(dispatch_redis) == before
    async with service.client(key_format.generate()) as client:
        assert (await client.get("/v1/models")).status_code == 401
    assert await commands(dispatch_redis) == before + 1, "an unknown one is looked up"


async def test_unknown_and_wrong_keys_are_told_the_same(
    admission: Admission, snapshot: Snapshot
) -> None:
    key = await snapshot.add_key("Acme", digests=[KeyDigest(digest=b"x" * 32)])
    wrong, unknown = await refused(admission, key), await refused(admission, key_format.generate())
    assert wrong.to_wire() == unknown.to_wire()
    assert wrong.to_wire().code == "invalid_api_key"


async def test_a_revoked_key_is_told_so_and_only_to_its_holder(
    admission: Admission, snapshot: Snapshot
) -> None:
    sentence = "This API key was revoked on 1 May."
    key = await snapshot.add_key("Acme", refusal=sentence)
    error = await refused(admission, key)
    assert isinstance(error, Unauthenticated)
    assert (error.message, error.to_wire().code) == (sentence, "api_key_revoked")
    other = await snapshot.add_key("Acme", refusal=sentence, digests=[KeyDigest(digest=b"x" * 32)])
    assert sentence not in (await refused(admission, other)).message


async def test_a_key_expires_without_a_change_of_the_snapshot(
    admission: Admission, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await snapshot.add_key("Acme", expires_at_ms=clock.now_ms() + 60_000)
    assert await works(admission, key)
    pass_a_minute(monkeypatch)
    error = await refused(admission, key)
    assert error.status == 401
    assert error.to_wire().code == "api_key_expired"


async def test_a_rotated_key_works_beside_its_successor_until_its_overlap_is_over(
    admission: Admission, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = key_format.generate()
    new = key_format.generate(key_format.parse(old).public_id)
    ends = clock.now_ms() + 60_000
    digests = [
        KeyDigest(digest=key_format.digest(new, PEPPER)),
        KeyDigest(digest=key_format.digest(old, PEPPER), expires_at_ms=ends),
    ]
    await snapshot.put_key(old, "Acme", digests=digests)
    assert await works(admission, old)
    assert await works(admission, new)
    pass_a_minute(monkeypatch)
    error = await refused(admission, old)
    assert (error.status, error.to_wire().code) == (401, "api_key_rotated")
    assert await works(admission, new)


async def test_a_suspended_tenants_keys_are_refused_with_its_sentence(
    admission: Admission, snapshot: Snapshot
) -> None:
    key = await snapshot.add_key("Acme")
    await snapshot.put_tenant("Acme", refusal="Acme is suspended; write to billing.")
    error = await refused(admission, key)
    assert isinstance(error, Forbidden)
    assert error.to_wire().code == "tenant_suspended"
    assert error.message == "Acme is suspended; write to billing."


@pytest.mark.parametrize(
    ("address", "is_inside"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("2001:db8::1", True),
        ("11.1.2.3", False),
        ("::ffff:11.1.2.3", False),
        ("2001:db9::1", False),
        ("/run/socket", False),
        (None, False),
    ],
)
async def test_a_key_works_only_from_its_networks(
    admission: Admission, snapshot: Snapshot, address: str | None, is_inside: bool
) -> None:
    key = await snapshot.add_key("Acme", networks=["10.0.0.0/8", "2001:db8::/32"])
    if is_inside:
        assert await works(admission, key, address=address)
        return
    error = await refused(admission, key, address=address)
    assert (error.status, error.to_wire().code) == (403, "address_not_allowed")


async def test_a_key_that_works_here_is_checked_again_from_there(
    admission: Admission, snapshot: Snapshot
) -> None:
    key = await snapshot.add_key("Acme", networks=["10.0.0.0/8"])
    assert await works(admission, key, address="10.0.0.1")
    assert (await refused(admission, key, address="11.0.0.1")).status == 403


async def test_a_missing_scope_is_named_beside_those_that_are_there(
    admission: Admission, snapshot: Snapshot
) -> None:
    key = await snapshot.add_key("Acme", scopes=[Scope.USAGE_READ, Scope.KEYS_WRITE])
    error = await refused(admission, key, scope=Scope.INFERENCE)
    assert (error.status, error.to_wire().code) == (403, "missing_scope")
    for scope in (Scope.INFERENCE, Scope.USAGE_READ, Scope.KEYS_WRITE):
        assert scope.value in error.message
    assert await works(admission, key, scope=Scope.USAGE_READ)
    admin = await snapshot.add_key("Acme", scopes=[Scope.ADMIN])
    for scope in Scope:
        assert await works(admission, admin, scope=scope)


async def test_routes_ask_for_the_scope_that_they_need(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    key = await service.snapshot.add_key("Acme", scopes=[Scope.USAGE_READ])
    async with service.client(key) as client:
        for path in ("/v1/chat/completions", "/v1/stream/tickets"):
            answer = await client.post(path, json=ASK)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "missing_scope")
        for path in ("/v1/models", "/v1/limits"):
            assert (await client.get(path)).status_code == 200


async def test_models_that_a_key_may_not_name_are_unknown_to_it(service: Service) -> None:
    await service.snapshot.add_model("other")
    key = await service.snapshot.add_key("Acme", models=["other"])
    async with service.client(key) as client:
        listed = (await client.get("/v1/models")).json()["data"]
        assert [model["id"] for model in listed] == ["other"]
        hidden = await client.post("/v1/chat/completions", json=ASK)
        unknown = await client.post("/v1/chat/completions", json=ASK | {"model": "model-x"})
    assert hidden.status_code == unknown.status_code == 404
    hidden_error, unknown_error = hidden.json()["error"], unknown.json()["error"]
    assert hidden_error["message"] == unknown_error["message"].replace("model-x", MODEL)


async def test_a_key_of_an_earlier_pepper_works_and_its_new_digest_is_told(
    admission: Admission, snapshot: Snapshot, dispatch_redis: Redis
) -> None:
    old = [KeyDigest(digest=b"")]
    key = await snapshot.add_key("Acme", digests=old)
    earlier = key_format.digest(key, EARLIER_PEPPER)
    await snapshot.put_key(key, "Acme", digests=[KeyDigest(digest=earlier)])
    assert await works(admission, key)
    caller = await admission.authenticate(f"Bearer {key}", address=HERE, scope=None)
    public_id = key_format.parse(key).public_id
    earlier, current = key_format.digest(key, EARLIER_PEPPER), key_format.digest(key, PEPPER)

    async def told() -> bool:
        return await dispatch_redis.hget(keys.policy_new_digests(), public_id) == earlier + current

    await eventually(told)
    await snapshot.put_key(key, "Acme", digests=[KeyDigest(digest=current)])
    assert await works(admission, key)
    assert await admission.refusal_of(caller) is None, "what it has open goes on"


async def test_a_pepper_that_was_dropped_voids_its_keys(
    gateway_settings: GatewaySettings, snapshot: Snapshot, dispatch_redis: Redis
) -> None:
    key = key_format.generate()
    digest = KeyDigest(digest=key_format.digest(key, EARLIER_PEPPER))
    await snapshot.put_key(key, "Acme", digests=[digest])
    for previous, status in (((EARLIER_PEPPER,), 200), ((), 401)):
        gateway = create_gateway(replace(gateway_settings, previous_api_key_peppers=previous))
        await gateway.startup()
        try:
            async with serving(gateway.http) as url, httpx.AsyncClient(base_url=url) as client:
                headers = {"Authorization": f"Bearer {key}"}
                assert (await client.get("/v1/models", headers=headers)).status_code == status
        finally:
            await gateway.shutdown()


async def test_the_last_use_of_a_key_is_told_once_a_minute_and_in_the_background(
    admission: Admission,
    snapshot: Snapshot,
    dispatch_redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, other = await snapshot.add_key("Acme"), await snapshot.add_key("Acme", networks=[])
    public_id = key_format.parse(key).public_id
    began_ms = clock.now_ms()
    for _ in range(3):
        await works(admission, key)
    await refused(admission, other)

    async def told() -> dict[Any, Any]:
        return await dispatch_redis.hgetall(keys.policy_key_uses())

    [(told_id, at_ms)] = (await eventually(told)).items()
    assert told_id.decode() == public_id
    assert began_ms <= int(at_ms) <= clock.now_ms()
    await dispatch_redis.delete(keys.policy_key_uses())
    await works(admission, key)
    await admission.stop()
    assert not await told(), "within the minute it is not told again"
    monkeypatch.setattr(key_activity, "REPORT_SECONDS", 0)
    await works(admission, key)
    await admission.stop()
    assert await told()


async def test_a_tenant_that_the_snapshot_has_not_yet_is_a_503(
    admission: Admission, snapshot: Snapshot, dispatch_redis: Redis
) -> None:
    key = await snapshot.add_key("Acme")
    await dispatch_redis.delete(keys.policy_tenants())
    error = await refused(admission, key)
    assert (error.status, error.to_wire().code) == (503, "policy_unavailable")
