"""A request's lines bear its id, at the gateway, at the worker and at the collector."""

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from redis import Redis

from gpu_workers.protocol.request_id import new_request_id
from inference.lifecycle.completions import Completions
from inference.usage.collector import UsageCollector
from tenants.models import ApiKey
from tests.support.gateways.chat_request import CHAT, body
from tests.support.gateways.service import Service
from tests.support.gateways.websocket import ask, connected, receive
from tests.support.projects import make_key
from tests.support.usage_entries import ARRIVED_MS, append, usage_entry

PROMPT = "the-words-of-a-client"


class Lines:
    """What was logged, as events: loggers are made once, so nothing can be put in their place."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([each.msg for each in self._caplog.records if isinstance(each.msg, dict)])

    def __str__(self) -> str:
        return self._caplog.text


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO)
    return Lines(caplog)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw, after the caller was let in."""

    async def fail(*_: Any, **__: Any) -> None:
        structlog.get_logger("inference").info("on_the_way")
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(Completions, "_begin", fail)


@pytest.mark.usefixtures("broken")
async def test_what_fails_behind_http_says_of_which_request(service: Service, lines: Lines) -> None:
    async with service.client() as client:
        answers = [
            await client.post(CHAT, content=body(messages=[{"role": "user", "content": PROMPT}]))
            for _ in range(2)
        ]
    told = [line["request_id"] for line in lines if line["event"] == "request_failed"]
    assert told == [answer.headers["x-request-id"] for answer in answers]
    assert [line["request_id"] for line in lines if line["event"] == "on_the_way"] == told
    assert PROMPT not in str(lines)


@pytest.mark.usefixtures("broken")
async def test_what_fails_behind_a_websocket_says_of_which_request(
    service: Service, lines: Lines
) -> None:
    async with connected(service, key=service.alice) as socket:
        for name in ("a", "b"):
            await ask(socket, name)
            assert (await receive(socket))["type"] == "error"
    told = [line["request_id"] for line in lines if line["event"] == "request_failed"]
    assert len(set(told)) == 2 and all(uuid.UUID(each) for each in told)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("operators_session")
def test_what_the_collector_cannot_record_says_of_which_request(redis: Redis, lines: Lines) -> None:
    api_key: ApiKey = make_key("Acme")
    request_id = new_request_id(ARRIVED_MS)
    append(redis, usage_entry(api_key, request_id=request_id, tenant_id="nobody"))
    append(redis, usage_entry(api_key, request_id="not an id\nforged=line"))
    UsageCollector(redis).drain()
    told = [line["request_id"] for line in lines if line["event"] == "usage_quarantined"]
    assert told == [request_id, ""]
