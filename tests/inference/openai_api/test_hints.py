"""A refusal names what could have been said instead."""

from typing import Any

import pytest

from inference.errors import InvalidRequest
from inference.openai_api.chat_request import parse_chat
from inference.openai_api.completion_request import parse_completion
from tests.support.gateways.cast import MODEL
from tests.support.gateways.chat_request import MESSAGES, body
from tests.support.gateways.service import Service
from tests.support.gateways.websocket import ask, connected, receive


def refusal(**changes: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        parse_chat(body(**changes))
    return error.value


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"temprature": 1}, "Unknown parameter 'temprature'. Did you mean 'temperature'?"),
        ({"max_token": 1}, "Unknown parameter 'max_token'. Did you mean 'max_tokens'?"),
        (
            {"messages": [{**MESSAGES[0], "nam": "x"}]},
            "Unknown parameter 'messages[0].nam'. Did you mean 'name'?",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"nam": "x"}}},
            "Unknown parameter 'response_format.json_schema.nam'. Did you mean 'name'?",
        ),
        ({"frobnicate": 1}, "Unknown parameter 'frobnicate'."),
    ],
)
def test_an_unknown_parameter_suggests_the_nearest(changes: dict[str, Any], told: str) -> None:
    error = refusal(**changes)
    assert error.message == told
    assert error.to_wire().code == "unknown_field"


@pytest.mark.parametrize(
    ("changes", "choices"),
    [
        ({"truncation_side": "middle"}, ["'left'", "'right'"]),
        ({"tool_choice": "maybe"}, ["'none'", "'auto'", "'required'"]),
        ({"reasoning_effort": "huge"}, ["'low'", "'medium'", "'high'"]),
        ({"response_format": {"type": "xml"}}, ["'text'", "'json_object'", "'json_schema'"]),
    ],
)
def test_a_wrong_word_names_the_choices(changes: dict[str, Any], choices: list[str]) -> None:
    message = refusal(**changes).message
    assert all(choice in message for choice in choices), message
    assert "nvalid enum" not in message


def test_a_completions_body_has_names_of_its_own() -> None:
    with pytest.raises(InvalidRequest, match=r"Did you mean 'prompt'\?"):
        parse_completion(b'{"model": "m", "promt": "x"}')


async def test_a_path_without_v1_is_told_to_add_it_in_json(service: Service) -> None:
    async with service.client() as client:
        for path in ("/chat/completions", "/completions/", "/models"):
            answer = await client.post(path, json={"model": MODEL})
            assert answer.status_code == 404
            told = answer.json()["error"]
            assert f"add /v1 to the base URL, as in /v1{path.rstrip('/')}" in told["message"]


async def test_an_unknown_endpoint_lists_those_that_there_are(service: Service) -> None:
    async with service.client() as client:
        message = (await client.post("/v1/embeddings", json={})).json()["error"]["message"]
    assert "POST /v1/chat/completions" in message
    assert "GET /v1/models" in message


async def test_a_websocket_takes_a_long_prompt_and_names_the_apis(service: Service) -> None:
    long = [{"role": "user", "content": "word " * 150_000}]
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a", body={"model": "nothing", "messages": long})
        answer = await receive(socket)
        await ask(socket, "b", api="chat")
        wrong = await receive(socket)
    assert (answer["id"], answer["error"]["code"]) == ("a", "model_not_found")
    assert "'chat.completions', 'completions'" in wrong["error"]["message"]
