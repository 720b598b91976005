"""What simulated text cannot have is refused by name; a 200 that ignores it would be a lie."""

from typing import Any

import pytest

from gpu_workers.protocol.messages import Api, Outcome
from gpu_workers.sim.engine import SimEngine
from tests.support.workers.asking import ask
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.running_worker import Steps

TOOL = {"type": "function", "function": {"name": "weather"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}


async def asked(body: dict[str, Any], api: Api = Api.CHAT_COMPLETIONS) -> Any:
    engine = SimEngine(sleep=Steps(granted=100))
    await engine.start()
    try:
        envelope = make_envelope(body, stream=False, max_output_tokens=2, api=api)
        return (await ask(engine, envelope)).result
    finally:
        await engine.stop()


@pytest.mark.parametrize(
    ("field", "value", "capability"),
    [
        ("tools", [TOOL], "tools"),
        ("response_format", SCHEMA, "json_schema"),
        ("response_format", {"type": "json_object"}, "json_schema"),
        ("structured_outputs", {"choice": ["a", "b"]}, "json_schema"),
        ("logprobs", True, "logprobs"),
        ("reasoning_effort", "low", "reasoning"),
    ],
)
async def test_a_capability_that_it_lacks_is_a_400_that_names_it(
    field: str, value: object, capability: str
) -> None:
    messages = [{"role": "user", "content": "Which tool?"}]
    result = await asked({"messages": messages, field: value})
    assert result.outcome is Outcome.REFUSED
    assert (result.error.status, result.error.param) == (400, field)
    assert result.error.code == "model_capability_missing"
    assert f"does not support {capability}" in result.error.message
    assert result.usage.completion_tokens == 0


@pytest.mark.parametrize("field", ["logprobs", "echo"])
async def test_a_completion_is_refused_what_its_tokens_would_need(field: str) -> None:
    value = 0 if field == "logprobs" else True
    result = await asked({"prompt": "Once", field: value}, Api.COMPLETIONS)
    assert (result.outcome, result.error.param) == (Outcome.REFUSED, field)


async def test_what_asks_for_nothing_is_answered() -> None:
    harmless = {
        "tools": [TOOL],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "logprobs": False,
        "reasoning_effort": "none",
    }
    result = await asked({"messages": [{"role": "user", "content": "Hello."}]} | harmless)
    assert result.outcome is Outcome.COMPLETED
