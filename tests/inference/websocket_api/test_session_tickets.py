"""Tickets of the playground: of one session, for one connection, for a key that nobody has."""

import secrets

import pytest
from django.conf import settings
from redis.asyncio import Redis
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gpu_workers.protocol.policy import ApiKeyPolicy, Caller, Scope, TenantPolicy
from inference.admission.tickets import TICKET_SECONDS, new_ticket
from tenants import key_format
from tests.support.gateways.scripted_worker import ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import Service, Snapshot, a_tier
from tests.support.gateways.websocket import ask, connected, receive, text_of, words_until_the_end

ALICES, BOBS = "a" * 32, "b" * 32


@pytest.fixture
async def playground(service: Service, snapshot: Snapshot) -> str:
    """The public id of Alice's playground's key, as the gateways know it; in the form of a key."""
    key = key_format.generate()
    await snapshot.put_key(key, "Acme", digests=[], has_secret=False)
    return key


async def ticket(redis: Redis, key: str, session: str) -> str:
    """As the page writes it."""
    caller = Caller(
        public_key_id=key_format.parse(key).public_id,
        key=ApiKeyPolicy(
            key_id="key",
            digests=[],
            tenant_id="acme",
            project_id="project-of-Acme",
            scopes=[Scope.INFERENCE],
            has_secret=False,
        ),
        tenant=TenantPolicy(tenant_id="acme", name="Acme", tier=a_tier()),
    )
    new = new_ticket(caller, session=session)
    await redis.set(new.key, new.entry, ex=TICKET_SECONDS)
    return new.text


def cookie(session: str) -> dict[str, str]:
    return {"Cookie": f"{settings.SESSION_COOKIE_NAME}={session}", "Origin": "http://app.example"}


async def is_refused(service: Service, query: str, headers: dict[str, str]) -> int:
    with pytest.raises(InvalidStatus) as refused:
        async with connected(service, query=query, **headers):
            pass
    return int(refused.value.response.status_code)


async def test_the_sessions_own_ticket_opens_one_connection(
    service: Service, playground: str, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    await worker.start()
    query = f"?session_ticket={await ticket(dispatch_redis, playground, ALICES)}"
    async with connected(service, query=query, **cookie(ALICES)) as socket:
        await ask(socket, "a")
        frames = await words_until_the_end(socket, {"a"})
    assert text_of(frames["a"]) == "One two three"
    assert await is_refused(service, query, cookie(ALICES)) == 401


async def test_another_sessions_ticket_is_none_and_stays_its_owners(
    service: Service, playground: str, dispatch_redis: Redis
) -> None:
    text = await ticket(dispatch_redis, playground, ALICES)
    query = f"?session_ticket={text}"
    assert await is_refused(service, query, cookie(BOBS)) == 401
    assert await is_refused(service, query, {"Origin": "http://app.example"}) == 401
    assert await is_refused(service, f"?ticket={text}", cookie(ALICES)) == 401
    async with connected(service, query=query, **cookie(ALICES)):
        pass


async def test_another_sites_page_cannot_use_it(
    service: Service, playground: str, dispatch_redis: Redis
) -> None:
    query = f"?session_ticket={await ticket(dispatch_redis, playground, ALICES)}"
    headers = cookie(ALICES) | {"Origin": "http://evil.example"}
    assert await is_refused(service, query, headers) == 403


async def test_a_key_without_a_secret_is_refused_whatever_is_presented(
    service: Service, playground: str
) -> None:
    public_id = key_format.parse(playground).public_id
    for presented in (
        playground,
        key_format.assemble(public_id, bytes(20)),
        key_format.assemble(public_id, secrets.token_bytes(20)),
    ):
        async with service.client(presented) as client:
            answer = await client.get("/v1/models")
        assert answer.status_code == 401


async def test_revoking_the_key_ends_what_is_open(
    service: Service,
    snapshot: Snapshot,
    playground: str,
    worker: ScriptedWorker,
    dispatch_redis: Redis,
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    query = f"?session_ticket={await ticket(dispatch_redis, playground, ALICES)}"
    async with connected(service, query=query, **cookie(ALICES)) as socket:
        await ask(socket, "a")
        assert (await receive(socket))["type"] == "chunk"
        await snapshot.put_key(playground, "Acme", refusal="This API key has been revoked.")
        codes = []
        with pytest.raises(ConnectionClosed):
            while True:
                codes.append((await receive(socket))["error"]["code"])
    assert codes == ["api_key_revoked", "api_key_revoked"]
    other = await ticket(dispatch_redis, playground, ALICES)
    assert await is_refused(service, f"?session_ticket={other}", cookie(ALICES)) == 401
