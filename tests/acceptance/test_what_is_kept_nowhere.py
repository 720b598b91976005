"""After everything else of the suite: no API key, no prompt and no output in a page, a metric, a
log line or a span, in Redis or PostgreSQL."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
import redis
from control_plane.operator_site.dashboards.registry import DASHBOARDS
from django.urls import get_resolver
from psycopg import sql

from gpu_workers.config import read_env_file
from tests.support.accounts.session import Session, signed_in
from tests.support.places import NO_TLS
from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

PROMPT_CANARY = "canary-of-a-prompt-7f3a"
OUTPUT_CANARY = "canary-of-an-output-9c1e"
# Of whom a request was for, as its project wants it on record.
USER, ORDER = "user-on-record-5d2b", "order-on-record-5d2c"
LABELS = {"user": USER, "metadata": {"order": ORDER, "note": PROMPT_CANARY}}
# Asks for the one answer that the grammar allows.
SCHEMA = {"type": "string", "enum": [OUTPUT_CANARY]}
ASKS = {
    "max_tokens": 64,
    "response_format": {"type": "json_schema", "json_schema": {"name": "said", "schema": SCHEMA}},
}
UNLABELLED = {"user": PROMPT_CANARY, "metadata": {"note": PROMPT_CANARY}}
# At its gateway and its worker, each with its phases.
SPANS = 7


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Requests that held the canaries, and what nobody may find of whoever sent them."""

    ids: list[str]
    refused_ids: list[str]
    secrets: list[str]


@pytest.fixture(scope="module")
def owner(live_stack: LiveStack) -> Iterator[Session]:
    with signed_in(live_stack, live_stack.acme_owner) as session:
        yield session


@pytest.fixture(scope="module")
def tenant(owner: Session) -> str:
    """Acme's id."""
    return str(owner.get("/api/v1/tenants").json()["data"][0]["id"])


@pytest.fixture(scope="module")
def asked(live_stack: LiveStack, owner: Session, tenant: str) -> Asked:
    """By every door: both tenants, streamed or not, an adapter, a project that records labels, the
    playground, and what is refused."""
    api = f"/api/v1/tenants/{tenant}"
    labels = {"name": "Kept nowhere", "usage_labels": ["user", "metadata.order"]}
    project = owner.post(f"{api}/projects", json=labels).json()["id"]
    made = {"name": "kept nowhere", "project_id": project, "scopes": ["inference"]}
    labelled = str(owner.post(f"{api}/keys", json=made).json()["key"])
    acme, globex = live_stack.acme_key, live_stack.globex_key
    ids = [
        _says_the_canary(live_stack, key, **more)
        for key, more in (
            (acme, UNLABELLED),
            (globex, UNLABELLED),
            (acme, UNLABELLED | {"stream": True}),
            (globex, UNLABELLED | {"stream": True}),
            (acme, UNLABELLED | {"model": "acme/support"}),
            (labelled, LABELS),
        )
    ]
    body = live_stack.chat_body(f"Say {PROMPT_CANARY}") | ASKS
    *_, done = frames = owner.ask_playground(tenant, project, body | LABELS | {"stream": True})
    assert done["type"] == "done", done
    assert OUTPUT_CANARY in "".join(_pieces(frames))
    refused_ids = []
    for wrong in ({"temperature": PROMPT_CANARY}, {PROMPT_CANARY: 1}, {"model": PROMPT_CANARY}):
        refused = live_stack.ask(acme, PROMPT_CANARY, **wrong)
        assert refused.status_code == (404 if "model" in wrong else 400)
        refused_ids.append(refused.headers["x-request-id"])
    assert live_stack.ask(f"{acme[:-6]}000000", PROMPT_CANARY).status_code == 401
    secrets = [key.split("-")[2] for key in (acme, globex, labelled)]
    return Asked(ids=[*ids, done["request_id"]], refused_ids=refused_ids, secrets=secrets)


@pytest.fixture(scope="module")
def places(
    live_stack: LiveStack, owner: Session, tenant: str, asked: Asked
) -> Iterator[dict[str, bytes]]:
    """By name, all that is kept and shown once the requests with the canaries have ended."""
    condition = f"request_id IN ({', '.join(repr(each) for each in asked.ids)})"
    eventually_sync(lambda: len(live_stack.usage_rows(condition)) == len(asked.ids), 15)
    # The sentences of what was refused too, some seconds later.
    refused = len(asked.refused_ids)
    eventually_sync(lambda: _sentences(live_stack, asked.refused_ids) == refused, 20)
    env = read_env_file(live_stack.var_folder / "demo.env")
    token = live_stack.environ["PENSTOCK_METRICS_TOKEN"]
    traces = live_stack.traces
    assert traces is not None
    eventually_sync(lambda: all(len(traces.of_request(each)) == SPANS for each in asked.ids), 15)
    worker = live_stack.worker()
    assert worker.figures is not None
    with signed_in(live_stack, live_stack.operator, is_operator=True) as operator:
        yield {
            **{address: operator.get(address).content for address in _dashboards()},
            **dict(_of_a_tenant(owner, tenant, asked.ids)),
            "the gateway's metrics": fetched(f"{live_stack.url}/metrics", token),
            "the public metrics": fetched(f"{live_stack.url}/metrics"),
            "the worker's metrics": fetched(worker.metrics_url),
            "what the worker tells of itself": repr(worker).encode(),
            "spans": b"\n".join(traces.bodies),
            **{log.name: log.read_bytes() for log in (live_stack.var_folder / "log").iterdir()},
            "the dispatch Redis": b"\n".join(
                everything_in_redis(env["PENSTOCK_DISPATCH_REDIS_URL"])
            ),
            "the other Redis": b"\n".join(everything_in_redis(env["PENSTOCK_REDIS_URL"])),
            "PostgreSQL": b"\n".join(everything_in_postgres(env["PENSTOCK_DATABASE_URL"])),
        }


def _says_the_canary(live_stack: LiveStack, key: str, **fields: Any) -> str:
    answer = live_stack.ask(key, f"Say {PROMPT_CANARY}", **ASKS | fields)
    assert answer.status_code == 200, answer.text
    if fields.get("stream"):
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        said = "".join(_deltas(events))
    else:
        said = answer.json()["choices"][0]["message"]["content"]
    assert OUTPUT_CANARY in said
    return str(answer.headers["x-request-id"])


def _pieces(frames: Sequence[dict[str, Any]]) -> Iterator[str]:
    return _deltas(frame["data"] for frame in frames if frame["type"] == "chunk")


def _deltas(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        for choice in event["choices"]:
            yield choice["delta"].get("content") or ""


def _dashboards() -> Iterator[str]:
    for dashboard in DASHBOARDS:
        yield dashboard.address
        yield dashboard.fragment_address


def _of_a_tenant(
    session: Session, tenant: str, request_ids: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Every page, file and list of a tenant that needs nothing but the tenant, whichever there are,
    and what there is of each of these requests."""
    addresses = sorted(set(_addresses(get_resolver().url_patterns, "/")))
    for each in map(UUID, request_ids):
        addresses += [f"/t/{tenant}/requests/{each}", f"/api/v1/tenants/{tenant}/requests/{each}"]
    for address in addresses:
        answer = session.look(address.replace("<uuid:tenant_id>", tenant))
        if answer.status_code == 200:  # Globex's requests are none
            yield address, answer.content


def _addresses(patterns: Sequence[Any], prefix: str) -> Iterator[str]:
    for pattern in patterns:
        address = f"{prefix}{pattern.pattern}"
        if hasattr(pattern, "url_patterns"):
            yield from _addresses(pattern.url_patterns, address)
        elif address.count("<") == 1 and "<uuid:tenant_id>" in address and "admin" not in address:
            yield address.removesuffix("$")


def _sentences(live_stack: LiveStack, request_ids: list[str]) -> int:
    role = "-c role=penstock_operator"
    with psycopg.connect(live_stack.database_url, options=role) as connection:
        query = "SELECT count(*) FROM inference_newestrefusal WHERE request_id = ANY(%s::uuid[])"
        row = connection.execute(query, [request_ids]).fetchone()
    return 0 if row is None else int(row[0])


def fetched(url: str, token: str = "") -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(url, headers=headers, timeout=10, verify=NO_TLS)
    assert answer.status_code == 200
    return answer.content


def everything_in_redis(url: str) -> Iterator[bytes]:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(count=1000):
            yield key
            yield repr(_value(client, key)).encode()


def _value(client: "redis.Redis", key: bytes) -> Any:
    match client.type(key):
        case b"string":
            return client.get(key)
        case b"hash":
            return client.hgetall(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"set":
            return client.smembers(key)
        case b"zset":
            return client.zrange(key, 0, -1)
        case b"stream":
            return client.xrange(key)
    return None  # expired in between


def everything_in_postgres(url: str) -> Iterator[bytes]:
    with psycopg.connect(url, options="-c role=penstock_operator") as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND has_table_privilege(oid, 'SELECT')"
        ).fetchall()
        assert len(tables) > 20
        for (table,) in tables:
            query = sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(sql.Identifier(table))
            with connection.cursor().copy(query) as copy:
                for row in copy:
                    yield bytes(row)


def holding(places: dict[str, bytes], text: str) -> list[str]:
    """Where a text is, as it stands or as PostgreSQL shows bytes."""
    forms = (text.encode(), text.encode().hex().encode())
    return [name for name, content in places.items() if any(form in content for form in forms)]


def test_the_search_finds_what_is_there(places: dict[str, bytes]) -> None:
    assert b"penstock-demo" in places["the dispatch Redis"]
    assert b"Acme" in places["PostgreSQL"] and b"penstock-demo" in places["PostgreSQL"]
    assert any(places[name] for name in places if name.endswith(".log"))
    assert b"penstock_gateway_refused_total" in places["the gateway's metrics"]
    assert b"penstock_worker_time_to_first_token_seconds" in places["the worker's metrics"]
    assert b"kv_used" in places["what the worker tells of itself"]
    assert b"penstock-gateway" in places["spans"] and b"penstock-worker" in places["spans"]
    assert b"penstock-demo" in places["/admin/dashboards/fleet/panels"]


def test_the_search_finds_whom_a_project_wants_on_record(
    places: dict[str, bytes], asked: Asked, tenant: str
) -> None:
    of_the_playground = UUID(asked.ids[-1])
    for label in (USER, ORDER):
        found = holding(places, label)
        assert "PostgreSQL" in found
        for door in ("/t", "/api/v1/tenants"):
            assert f"{door}/{tenant}/requests/{of_the_playground}" in found
    assert "/api/v1/tenants/<uuid:tenant_id>/usage/labels" in holding(places, USER)


@pytest.mark.parametrize("door", ["/t/<uuid:tenant_id>/", "/api/v1/tenants/<uuid:tenant_id>/"])
def test_the_search_has_every_page_and_list(places: dict[str, bytes], door: str) -> None:
    seen = {name.removeprefix(door) for name in places if name.startswith(door)}
    assert {"usage", "requests", "refusals", "keys"} <= seen
    if door.startswith("/t/"):
        assert {"", "playground", "models", "requests/export.csv", "refusals/export.csv"} <= seen
    else:
        assert {"refusals/newest", "usage/labels", "metrics"} <= seen


@pytest.mark.parametrize("canary", [PROMPT_CANARY, OUTPUT_CANARY])
def test_neither_a_prompt_nor_an_output_is_kept_anywhere(
    places: dict[str, bytes], canary: str
) -> None:
    assert holding(places, canary) == []


def test_no_key_is_kept_anywhere(places: dict[str, bytes], asked: Asked) -> None:
    for secret in asked.secrets:
        assert holding(places, secret) == []
