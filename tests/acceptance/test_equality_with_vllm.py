"""One request at a time, greedy or seeded, our answers are those of vLLM's own server."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gpu_workers.demo_model import MODEL_FOLDER
from tests.support.places import NO_TLS
from tests.support.reference_vllm import reference_vllm
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

USER = [{"role": "user", "content": "What is a tenant?"}]
CONVERSATION = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": [{"type": "text", "text": "What does a worker do?"}]},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}

CHAT_CASES: dict[str, dict[str, Any]] = {
    "plain": {"messages": USER},
    "conversation": {"messages": CONVERSATION},
    "max_tokens": {"messages": USER, "max_tokens": 5},
    "max_completion_tokens": {"messages": USER, "max_completion_tokens": 7},
    "stop": {"messages": USER, "stop": [" is"]},
    "two seeded choices": {"messages": USER, "n": 2, "seed": 7, "temperature": 0.7},
    "logprobs": {"messages": USER, "logprobs": True, "top_logprobs": 2, "max_tokens": 6},
    "ignore_eos": {"messages": USER, "ignore_eos": True, "max_tokens": 40},
    "min_tokens": {"messages": USER, "min_tokens": 30, "max_tokens": 40},
    "penalties": {"messages": USER, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    "logit_bias": {"messages": USER, "logit_bias": {"300": -100}, "max_tokens": 12},
    "json schema": {
        "messages": USER,
        "max_tokens": 60,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "mood", "schema": SCHEMA, "strict": True},
        },
    },
    "regex": {"messages": USER, "structured_outputs": {"regex": "(yes|no)"}, "max_tokens": 10},
    "named tool": {
        "messages": USER,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "max_tokens": 60,
    },
    "automatic tool": {"messages": USER, "tools": [TOOL], "max_tokens": 20},
}
COMPLETION_CASES: dict[str, dict[str, Any]] = {
    "plain": {"prompt": "Penstock is"},
    "two prompts": {"prompt": ["Penstock is", "A tenant"], "max_tokens": 6},
    "token ids": {"prompt": [10, 11, 12], "max_tokens": 4},
    "echo": {"prompt": "Penstock is", "echo": True, "max_tokens": 4},
    "logprobs": {"prompt": "Penstock is", "logprobs": 2, "max_tokens": 4},
}


@pytest.fixture(scope="module")
def vllm_url(live_stack: LiveStack) -> Iterator[str]:
    log_file = live_stack.var_folder / "log" / "reference-vllm.log"
    with reference_vllm(
        MODEL_FOLDER, live_stack.model, log_file, max_num_seqs=live_stack.slots
    ) as server:
        yield server.url


@pytest.mark.parametrize("case", CHAT_CASES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_chat_completions_equal_vllms(
    live_stack: LiveStack, vllm_url: str, case: str, stream: bool
) -> None:
    body = {"model": live_stack.model, "temperature": 0, **CHAT_CASES[case]}
    path = "/v1/chat/completions"
    ours = _ask(live_stack.url + path, body, stream=stream, key=live_stack.acme_key)
    assert ours == _ask(vllm_url + path, body, stream=stream, key="none")


@pytest.mark.parametrize("case", COMPLETION_CASES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_completions_equal_vllms(
    live_stack: LiveStack, vllm_url: str, case: str, stream: bool
) -> None:
    body = {"model": live_stack.model, "temperature": 0, **COMPLETION_CASES[case]}
    path = "/v1/completions"
    ours = _ask(live_stack.url + path, body, stream=stream, key=live_stack.acme_key)
    assert ours == _ask(vllm_url + path, body, stream=stream, key="none")


def _ask(url: str, body: dict[str, Any], *, stream: bool, key: str) -> dict[str, Any]:
    """What must be equal: per choice text, tool calls, log-probabilities, finish reason; usage."""
    headers = {"Authorization": f"Bearer {key}"}
    if not stream:
        answer = httpx.post(url, json=body, headers=headers, timeout=60, verify=NO_TLS)
        assert answer.status_code == 200, answer.text
        parsed = answer.json()
        choices = {choice["index"]: _whole(choice) for choice in parsed["choices"]}
        return {"choices": choices, "usage": _counts(parsed["usage"])}
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    collected: dict[int, dict[str, Any]] = {}
    usage: dict[str, int] = {}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60, verify=NO_TLS) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = httpx.Response(200, text=line[6:]).json()
            if event.get("usage"):
                usage = _counts(event["usage"])
            for choice in event["choices"]:
                _add(collected.setdefault(choice["index"], _empty()), choice)
    return {"choices": collected, "usage": usage}


def _empty() -> dict[str, Any]:
    return {"text": "", "arguments": "", "tool": "", "logprobs": [], "finish_reason": None}


def _whole(choice: dict[str, Any]) -> dict[str, Any]:
    seen = _empty()
    message = choice.get("message") or {"content": choice["text"]}
    _add(seen, choice | {"delta": message})
    return seen


def _add(seen: dict[str, Any], choice: dict[str, Any]) -> None:
    delta = choice.get("delta") or {"content": choice.get("text")}
    seen["text"] += delta.get("content") or ""
    for call in delta.get("tool_calls") or []:
        seen["tool"] += call["function"].get("name") or ""
        seen["arguments"] += call["function"].get("arguments") or ""
    logprobs = choice.get("logprobs") or {}
    seen["logprobs"] += [item["token"] for item in logprobs.get("content") or []]
    seen["logprobs"] += logprobs.get("tokens") or []
    seen["finish_reason"] = choice.get("finish_reason") or seen["finish_reason"]


def _counts(usage: dict[str, Any]) -> dict[str, int]:
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
