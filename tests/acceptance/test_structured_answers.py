"""The demo model gives JSON and calls tools, on the real vLLM, as clients ask for both."""

import json
from typing import Any

import jsonschema
import pytest

from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "quantity": {"type": "integer"}},
    "required": ["item", "quantity"],
    "additionalProperties": False,
}
ORDER = "Please order 12 chairs for Maria."
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def test_a_schema_is_filled_in_and_ends(live_stack: LiveStack) -> None:
    schema = {"name": "order", "schema": SCHEMA, "strict": True}
    answer = live_stack.ask(
        live_stack.acme_key,
        f"{ORDER} Answer in JSON with item and quantity.",
        response_format={"type": "json_schema", "json_schema": schema},
        temperature=0,
    ).json()
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert json.loads(choice["message"]["content"]) == {"item": "chairs", "quantity": 12}


@pytest.mark.parametrize(
    "question",
    [
        "What is Penstock?",
        "Tell me a story.",
        "Ada is 40 years old and lives in Paris.",
        "A review by Simon: 5 stars for the lamp.",
    ],
)
def test_no_question_has_a_schema_filled_with_blanks(live_stack: LiveStack, question: str) -> None:
    schema = {"name": "order", "schema": SCHEMA, "strict": True}
    for asked in ({"type": "json_schema", "json_schema": schema}, {"type": "json_object"}):
        answer = live_stack.ask(
            live_stack.acme_key,
            question,
            response_format=asked,
            max_tokens=200,
            temperature=0,
        ).json()
        [choice] = answer["choices"]
        assert choice["finish_reason"] == "stop", choice
        told = json.loads(choice["message"]["content"])
        if "json_schema" in asked:
            jsonschema.validate(told, SCHEMA)


def test_a_tool_is_called_with_what_was_said(live_stack: LiveStack) -> None:
    choice = answered(live_stack, {"role": "user", "content": "What is the weather in Paris?"})
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_the_result_of_a_tool_becomes_an_answer(live_stack: LiveStack) -> None:
    call: Any = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    }
    choice = answered(
        live_stack,
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    )
    assert choice.message.content == "The answer is: sunny."


def test_a_question_that_no_tool_answers_is_answered(live_stack: LiveStack) -> None:
    choice = answered(live_stack, {"role": "user", "content": "What is Penstock?"})
    assert choice.finish_reason == "stop"
    assert "Penstock" in (choice.message.content or "")


def answered(stack: LiveStack, *messages: Any) -> Any:
    """Return the choice of an answer to these messages, of a client that offers the tool."""
    client = stack.openai_client(stack.acme_key)
    answer = client.chat.completions.create(
        model=stack.model, messages=messages, tools=[WEATHER], temperature=0
    )
    [choice] = answer.choices
    return choice
