"""Which requests may be gone on with, as the door decides from the body."""

import json
from typing import Any

import pytest

from inference.openai_api.chat_request import parse_chat
from inference.openai_api.completion_request import parse_completion

MESSAGES = [{"role": "user", "content": "What is a penstock?"}]
TOOL = {"type": "function", "function": {"name": "gate", "parameters": {"type": "object"}}}


def chat_is_resumable(**fields: Any) -> bool:
    body = {"model": "demo", "messages": MESSAGES} | fields
    return parse_chat(json.dumps(body).encode()).is_resumable


def completion_is_resumable(**fields: Any) -> bool:
    body = {"model": "demo", "prompt": "A penstock"} | fields
    return parse_completion(json.dumps(body).encode()).is_resumable


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0},
        {"temperature": 1, "top_p": 0.9, "top_k": 5, "min_p": 0.1},
        {"temperature": 0, "seed": 7},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"n": 1, "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1},
        {"stop": [], "logit_bias": {}, "bad_words": []},
        {"response_format": {"type": "text"}},
        {"logprobs": False, "top_logprobs": 0},
        {"tools": [TOOL], "tool_choice": "none"},
        {"ignore_eos": True, "min_tokens": 4, "max_tokens": 8, "stop_token_ids": [3]},
        {"user": "alice", "metadata": {"a": "b"}},
    ],
)
def test_plain_text_is_resumable(fields: dict[str, Any]) -> None:
    assert chat_is_resumable(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"seed": 7},
        {"seed": 7, "temperature": 0.5},
        {"frequency_penalty": 0.5},
        {"presence_penalty": -0.5},
        {"repetition_penalty": 1.1},
        {"logit_bias": {"5": 1}},
        {"bad_words": ["gate"]},
        {"stop": "gate"},
        {"stop": ["gate"]},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"logprobs": True},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "auto"},
        {"thinking_token_budget": 5},
        {"repetition_detection": {"max_pattern_size": 4}},
        {"return_token_ids": True},
        {"stream_interval": 2},
    ],
)
def test_what_more_than_the_tokens_before_decides_is_not(fields: dict[str, Any]) -> None:
    assert not chat_is_resumable(**fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"prompt": ["A penstock"]}, True),
        ({"prompt": [1, 2, 3]}, True),
        ({"prompt": ["A penstock", "A turbine"]}, False),
        ({"logprobs": 0}, False),
        ({"echo": True}, False),
        ({"echo": False}, True),
    ],
)
def test_a_completion_is_resumable_with_one_prompt(fields: dict[str, Any], expected: bool) -> None:
    assert completion_is_resumable(**fields) is expected
