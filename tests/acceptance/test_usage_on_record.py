"""Every request made is one usage record with the engine's counts, also when the client leaves."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.polling import eventually, eventually_sync
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

LONG = {"max_tokens": 1500, "ignore_eos": True, "temperature": 0, "stream": True}


def test_each_answer_is_one_record_with_the_counts_the_client_saw(live_stack: LiveStack) -> None:
    seen = {}
    for key in (live_stack.acme_key, live_stack.globex_key):
        answer = live_stack.ask(key, "What is Penstock?", temperature=0)
        assert answer.status_code == 200, answer.text
        seen[answer.headers["x-request-id"]] = answer.json()["usage"]
    rows = eventually_sync(
        lambda: found if len(found := _records(live_stack, list(seen))) == 2 else None,
        timeout_seconds=15,
    )
    assert rows is not None
    assert len({row["tenant_id"] for row in rows}) == 2
    for row in rows:
        usage = seen[row["request_id"].hex]
        assert row["prompt_tokens"] == usage["prompt_tokens"]
        assert row["completion_tokens"] == usage["completion_tokens"]
        assert row["outcome"] == "completed"


async def test_fifty_clients_that_leave_midway_leave_fifty_records_and_an_empty_engine(
    live_stack: LiveStack,
) -> None:
    async def leave_midway(client: httpx.AsyncClient) -> str:
        body = live_stack.chat_body("Tell me a long story about Penstock.") | LONG
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if '"content":"' in line and '"content":""' not in line:
                    break
            return answer.headers["x-request-id"]

    async with httpx.AsyncClient(
        base_url=live_stack.url,
        headers={"Authorization": f"Bearer {live_stack.acme_key}"},
        timeout=60,
        limits=httpx.Limits(max_connections=50),
    ) as client:
        ids = await asyncio.gather(*(leave_midway(client) for _ in range(50)))

    rows = await eventually(
        lambda: found if len(found := _records(live_stack, ids)) == 50 else None,
        timeout_seconds=30,
    )
    assert rows is not None
    assert {row["outcome"] for row in rows} == {"cancelled"}
    assert all(0 < row["completion_tokens"] < 1500 for row in rows)
    await eventually(lambda: live_stack.running_in_engine() == 0, timeout_seconds=15)


def _records(stack: LiveStack, request_ids: list[str]) -> list[dict[str, Any]]:
    quoted = ",".join(f"'{request_id}'" for request_id in request_ids)
    return stack.usage_rows(f"request_id IN ({quoted})")
