"""What is promised of the count of refusals: each is told once, however often it is sent, and what
is kept of them is bounded, whatever is refused and whoever does not listen."""

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from gpu_workers.protocol.refusals import NEWEST, OTHER_MODELS, UNKNOWN_MODEL
from inference.admission import refusals
from inference.admission.refusals import Refusals
from inference.errors import InvalidRequest, LimitReached, ModelNotFound
from inference.lifecycle.completions import GatewaySettings
from tenants import key_format
from tests.support.gateways.callers import a_caller
from tests.support.gateways.refused import told
from tests.support.gateways.service import Snapshot, a_service
from tests.support.metrics import sample
from tests.support.redis_servers.weather import ANSWER_LOST, redis_weather

SECRET = "quetzalcoatl"


def refuse(gathered: Refusals, times: int = 1, *, tenant: str = "acme", **changes: Any) -> None:
    caller = a_caller(tenant, key_id=changes.pop("key_id", "key"))
    for _ in range(times):
        gathered.note(LimitReached("Enough."), caller, **changes)


async def test_a_batch_whose_answer_was_lost_is_sent_again_under_its_number(
    dispatch_redis_url: str, dispatch_redis: Redis, gateway_settings: GatewaySettings
) -> None:
    async with (
        redis_weather(dispatch_redis_url) as weather,
        Redis.from_url(weather.url, retry=None) as redis,
    ):
        weather.strike("XADD refusals", ANSWER_LOST, times=1)
        gathered = Refusals(redis)
        refuse(gathered, 3)
        with pytest.raises(RedisError):
            await gathered.flush()
        refuse(gathered, 2)
        await gathered.stop()
        assert weather.is_over("XADD refusals")
    batches = await told(dispatch_redis)
    assert [batch.number for batch in batches] == [1, 1, 2]
    assert batches[0] == batches[1]
    assert [batch.counts[0].count for batch in batches[1:]] == [3, 2]


async def test_what_redis_does_not_take_is_told_later(dispatch_redis: Redis) -> None:
    gathered = Refusals(dispatch_redis)
    await dispatch_redis.set(keys.refusals(), "no stream")
    refuse(gathered, 2)
    await gathered.stop()
    await dispatch_redis.delete(keys.refusals())
    refuse(gathered, 5)
    await gathered.stop()
    assert sum(batch.counts[0].count for batch in await told(dispatch_redis)) == 7


async def test_a_stream_that_nobody_reads_stays_small_and_nothing_is_lost(
    dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "MOST_BATCHES", 3)
    gathered = Refusals(dispatch_redis)
    for _ in range(10):
        refuse(gathered)
        await gathered.flush()
    assert len(await told(dispatch_redis)) == 3
    await dispatch_redis.delete(keys.refusals())
    await gathered.flush()
    assert sum(batch.counts[0].count for batch in await told(dispatch_redis)) == 7


async def test_one_tenants_variety_is_summed_and_takes_no_row_of_another(
    dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_ROWS_OF_A_TENANT", 10)
    gathered = Refusals(dispatch_redis)
    for number in range(200):
        refuse(gathered, key_id=f"key-{number}")
    refuse(gathered, tenant="globex")
    gathered.note(ModelNotFound("No."), a_caller("acme"), model=UNKNOWN_MODEL)
    await gathered.flush()
    [batch] = await told(dispatch_redis)
    of_acme = [each for each in batch.counts if each.tenant_id == "acme"]
    assert sum(each.count for each in of_acme) == 201
    rest = {each.code: each for each in of_acme if each.model == OTHER_MODELS}
    assert {code: each.count for code, each in rest.items()} == {
        "rate_limit_exceeded": 190,
        "model_not_found": 1,
    }
    assert {(each.project_id, each.api_key_id) for each in rest.values()} == {("", "")}
    [other] = [each for each in batch.counts if each.tenant_id == "globex"]
    assert other.api_key_id == "key"


async def test_memory_is_bounded_over_all_tenants_and_what_is_left_out_is_told(
    dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_ROWS", 20)
    monkeypatch.setattr(refusals, "_MOST_ROWS", 30)
    monkeypatch.setattr(refusals, "_NOTICES", 50)
    before = sample("penstock_gateway_uncounted_refusals_total")
    gathered = Refusals(dispatch_redis)
    for number in range(100):
        refuse(gathered, 2, tenant=f"tenant-{number}")
    await gathered.flush()
    batches = await told(dispatch_redis)
    counts = [each for batch in batches for each in batch.counts]
    uncounted = sample("penstock_gateway_uncounted_refusals_total") - before
    assert len(counts) == 30
    assert sum(each.count for each in counts) + uncounted == 200
    assert sum(len(batch.notices) for batch in batches) == 50


async def test_the_newest_sentences_are_kept_and_a_flood_takes_none_of_anothers(
    dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_NOTICES", NEWEST + 20)
    gathered = Refusals(dispatch_redis)
    for number in range(NEWEST * 3):
        refuse(gathered, request_id=str(number))
    refuse(gathered, 30, tenant="globex")
    await gathered.flush()
    batches = await told(dispatch_redis)
    found = [each for batch in batches for each in batch.notices]
    assert [each.request_id for each in found if each.tenant_id == "acme"] == [
        str(number) for number in range(NEWEST * 2 + 10, NEWEST * 3)
    ]
    assert len([each for each in found if each.tenant_id == "globex"]) == 30


async def test_many_rows_travel_in_several_batches(
    dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_ROWS_OF_A_BATCH", 10)
    gathered = Refusals(dispatch_redis)
    for number in range(25):
        refuse(gathered, key_id=f"key-{number}")
    await gathered.flush()
    batches = await told(dispatch_redis)
    assert [(batch.number, len(batch.counts)) for batch in batches] == [(1, 10), (2, 10), (3, 5)]
    assert len({each.api_key_id for batch in batches for each in batch.counts}) == 25


@pytest.mark.parametrize(
    ("error", "parameter", "kept"),
    [
        (InvalidRequest(SECRET), None, "The request is not valid; its answer said why."),
        (LimitReached(f"Use {key_format.generate()}."), None, "The request is not valid; its"),
        (LimitReached("x" * 900), None, "x" * 500),
    ],
)
async def test_a_message_is_kept_whole_only_where_it_is_ours(
    dispatch_redis: Redis, error: Any, parameter: str | None, kept: str
) -> None:
    gathered = Refusals(dispatch_redis)
    gathered.note(error, a_caller(), parameter=parameter)
    await gathered.flush()
    [batch] = await told(dispatch_redis)
    assert batch.notices[0].message.startswith(kept)
    assert len(batch.notices[0].message) <= 500


async def test_a_gateway_tells_each_second_and_the_rest_when_it_stops(
    gateway_settings: GatewaySettings, snapshot: Snapshot, dispatch_redis: Redis
) -> None:
    async with a_service(gateway_settings, snapshot) as service, service.client() as client:
        assert (await client.get("/v1/models/nothing")).status_code == 404
    [batch] = await told(dispatch_redis)
    assert [each.code for each in batch.counts] == ["model_not_found"]
