"""The official openai client against the live stack: what a developer who changes one URL gets."""

import asyncio

import openai
import pytest

from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

QUESTION = "What is Penstock?"


def test_alice_gets_a_whole_answer(live_stack: LiveStack) -> None:
    with live_stack.openai_client(live_stack.acme_key) as alice:
        answer = alice.chat.completions.create(
            model=live_stack.model, messages=[{"role": "user", "content": QUESTION}], temperature=0
        )
    choice = answer.choices[0]
    assert choice.message.content
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.id.startswith("chatcmpl-")


def test_a_stream_gives_the_same_text_in_pieces(live_stack: LiveStack) -> None:
    with live_stack.openai_client(live_stack.acme_key) as alice:
        whole = alice.chat.completions.create(
            model=live_stack.model, messages=[{"role": "user", "content": QUESTION}], temperature=0
        )
        events = list(
            alice.chat.completions.create(
                model=live_stack.model,
                messages=[{"role": "user", "content": QUESTION}],
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    pieces = [event.choices[0].delta.content or "" for event in events if event.choices]
    assert len(pieces) > 5
    assert "".join(pieces) == whole.choices[0].message.content
    assert events[-1].usage is not None and whole.usage is not None
    assert events[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_the_async_client_holds_many_streams_of_two_tenants_at_once(
    live_stack: LiveStack,
) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{live_stack.url}/v1", api_key=live_stack.acme_key) as alice,
        openai.AsyncOpenAI(base_url=f"{live_stack.url}/v1", api_key=live_stack.globex_key) as bob,
    ):

        async def ask(client: openai.AsyncOpenAI) -> str:
            stream = await client.chat.completions.create(
                model=live_stack.model,
                messages=[{"role": "user", "content": QUESTION}],
                temperature=0,
                stream=True,
            )
            return "".join([e.choices[0].delta.content or "" async for e in stream if e.choices])

        texts = await asyncio.gather(*(ask(client) for client in [alice, bob] * 8))
    assert len(set(texts)) == 1
    assert texts[0]


def test_legacy_completions_work(live_stack: LiveStack) -> None:
    with live_stack.openai_client(live_stack.acme_key) as alice:
        answer = alice.completions.create(
            model=live_stack.model, prompt="Penstock is", max_tokens=8, temperature=0
        )
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage is not None and 0 < answer.usage.completion_tokens <= 8


def test_models_are_listed_and_found_by_name(live_stack: LiveStack) -> None:
    with live_stack.openai_client(live_stack.acme_key) as alice:
        assert live_stack.model in [model.id for model in alice.models.list()]
        assert alice.models.retrieve(live_stack.model).id == live_stack.model
        with pytest.raises(openai.NotFoundError):
            alice.models.retrieve("gpt-nothing")


def test_an_over_long_prompt_and_a_bad_regex_are_refused_before_the_engine(
    live_stack: LiveStack,
) -> None:
    with live_stack.openai_client(live_stack.acme_key) as alice:
        with pytest.raises(openai.BadRequestError) as over_long:
            alice.chat.completions.create(
                model=live_stack.model,
                messages=[{"role": "user", "content": "what is a tenant " * 900}],
            )
        with pytest.raises(openai.BadRequestError) as bad_regex:
            alice.chat.completions.create(
                model=live_stack.model,
                messages=[{"role": "user", "content": QUESTION}],
                extra_body={"structured_outputs": {"regex": "([a-z"}},
            )
    assert over_long.value.code == "context_length_exceeded"
    assert over_long.value.param == "messages"
    assert bad_regex.value.type == "invalid_request_error"
    refused = eventually_sync(
        lambda: live_stack.usage_rows("outcome = 'refused'"), timeout_seconds=15
    )
    assert all(row["completion_tokens"] == 0 for row in refused)


def test_a_wrong_key_is_told_so(live_stack: LiveStack) -> None:
    with (
        live_stack.openai_client("pk-nothing") as nobody,
        pytest.raises(openai.AuthenticationError),
    ):
        nobody.models.list()
