"""Streams by the short paths, event for event what vLLM's own paths send.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest. The
engine has vLLM's `hermes` parser for tools.
"""

import json
import re
from typing import Any, Final

from gpu_workers.engine import Engine, EngineDescription
from gpu_workers.protocol.messages import Api, Outcome
from tests.support.workers.asking import QUESTION, Clause, ask
from tests.support.workers.envelopes import make_envelope

MOST_TOKENS: Final = 40
ODD_TEXT: Final = 'Öl, "Wasser" \\ 水\n\t\u0001'
USAGE: Final = {"stream_options": {"include_usage": True}}
# One stream ends in a sampled way, one before its first token's text is whole, one at its bound.
ENDINGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    USAGE,
    {"stop": ["e"]},
    {"max_tokens": 1},
    {"ignore_eos": True} | USAGE,
    {"temperature": 1.2, "seed": 7, "ignore_eos": True},
)

_GATE: Final = {
    "name": "gate",
    "parameters": {
        "type": "object",
        "properties": {"at": {"type": "string", "maxLength": 6}},
        "required": ["at"],
    },
}
TOOLS: Final[dict[str, Any]] = {"tools": [{"type": "function", "function": _GATE}]}
NAMED: Final = {"type": "function", "function": {"name": "gate"}}
_SOME_TEXT: Final = b'"content":"some"'
_CALL: Final = '<tool_call>\n{"name": "gate", "arguments": {"at": "Ö\\"水 }"}}\n</tool_call>'


async def streams_of_plain_text_are_vllms_own(
    engine: Engine, description: EngineDescription
) -> None:
    chats: list[dict[str, Any]] = [QUESTION | fields for fields in ENDINGS]
    chats += [QUESTION | {"messages": [{"role": "user", "content": ODD_TEXT}]}]
    chats += [QUESTION | TOOLS | {"tool_choice": "none"}]
    prompts: list[dict[str, Any]] = [{"prompt": "Water", "temperature": 0} | e for e in ENDINGS]
    prompts += [{"prompt": ODD_TEXT, "temperature": 0}]
    for api, bodies in ((Api.CHAT_COMPLETIONS, chats), (Api.COMPLETIONS, prompts)):
        for body in bodies:
            own, short = await _by_both_paths(engine, api, body)
            assert _without_pace(own) == _without_pace(short), (body, own, short)


async def streams_with_log_probabilities_are_vllms_own_event_by_event(
    engine: Engine, description: EngineDescription
) -> None:
    pieces = await _token_ids(engine, "Öl 水 🌊")
    # Characters of several tokens, begun and not ended: what can be decoded comes late, or never.
    odd = {"allowed_token_ids": pieces, "temperature": 2, "seed": 5, "ignore_eos": True}
    endings = [*ENDINGS, odd | USAGE, {"return_tokens_as_token_ids": True}]
    chats = [
        QUESTION | {"logprobs": True, "top_logprobs": top} | ending
        for top in (0, 1, 20)
        for ending in endings
    ]
    chats += [
        QUESTION | {"logprobs": True},
        QUESTION | {"logprobs": True} | TOOLS | {"tool_choice": "none"},
        QUESTION | {"logprobs": True, "messages": [{"role": "user", "content": ODD_TEXT}]},
    ]
    prompts: list[dict[str, Any]] = [
        {"prompt": "Water", "temperature": 0, "logprobs": top} | ending
        for top in (0, 1, 20)
        for ending in endings
    ]
    prompts += [{"prompt": ODD_TEXT, "temperature": 0, "logprobs": 2}]
    for api, bodies in ((Api.CHAT_COMPLETIONS, chats), (Api.COMPLETIONS, prompts)):
        for body in bodies:
            own, short = await _by_both_paths(engine, api, body)
            assert own == short, (body, own, short)
            assert any(b'"logprobs":{' in chunk for chunk in short), body


async def streams_with_tools_are_vllms_own(engine: Engine, description: EngineDescription) -> None:
    texts = [
        f"Well.{_CALL}",
        f"{_CALL}\n{_CALL}",
        f"One < two <tool, {_CALL} and more",
        "No call: <tool_call",
    ]
    forced: list[dict[str, Any]] = [{"structured_outputs": {"choice": [text]}} for text in texts]
    bodies: list[dict[str, Any]] = [
        *({"tool_choice": "auto", "max_tokens": MOST_TOKENS} | ending for ending in ENDINGS),
        *(each | USAGE for each in forced),
        forced[1] | {"parallel_tool_calls": False},
        *({"tool_choice": choice, "max_tokens": 80} | USAGE for choice in ("required", NAMED)),
        {"tool_choice": "required", "max_tokens": 5},
        {"tool_choice": NAMED, "max_tokens": 1},
    ]
    called = 0
    for body in bodies:
        body = QUESTION | TOOLS | body
        own, short = await _by_both_paths(engine, Api.CHAT_COMPLETIONS, body, tokens=200)
        assert _without_pace(own) == _without_pace(short), (body, own, short)
        # With log probabilities each token has an event of its own.
        own, short = await _by_both_paths(
            engine, Api.CHAT_COMPLETIONS, body | {"logprobs": True, "top_logprobs": 1}, tokens=200
        )
        assert own == short, (body, own, short)
        called += any(b'"finish_reason":"tool_calls"' in chunk for chunk in short)
    assert called >= len(texts) - 1


async def _by_both_paths(
    engine: Engine, api: Api, body: dict[str, Any], *, tokens: int = MOST_TOKENS
) -> list[list[bytes]]:
    """Return the events of vLLM's own path and of the short one, whoever asked and whenever."""
    # Only where vLLM is: this module is imported without it, for the names of its clauses.
    from gpu_workers.vllm.endpoints.registry import ENDPOINTS

    fast_path = ENDPOINTS[api].fast_path
    assert fast_path is not None
    streams = []
    for fast_path.is_enabled in (False, True):
        envelope = make_envelope(body, api=api, max_output_tokens=tokens)
        answer = await ask(engine, envelope)
        assert answer.result.outcome is Outcome.COMPLETED, (body, answer.result)
        chunks = [chunk for output in answer.outputs for chunk in output.chunks]
        streams.append([_anonymous(chunk, envelope.request_id) for chunk in chunks])
    return streams


def _anonymous(chunk: bytes, request_id: str) -> bytes:
    chunk = re.sub(rb'"created":\d+', b'"created":0', chunk)
    chunk = re.sub(rb'"id":"chatcmpl-tool-[^"]*"', b'"id":"call"', chunk)
    return chunk.replace(request_id.encode(), b"id")


def _without_pace(chunks: list[bytes]) -> tuple[str, dict[int, dict[str, str]], list[bytes]]:
    """Return a stream's text, its calls and the forms of its other events. How many tokens share an
    event, and whether the last has any, depends on how busy the machine is, so forms that repeat
    count once."""
    text = ""
    calls: dict[int, dict[str, str]] = {}
    forms: list[bytes] = []
    for chunk in chunks:
        for choice in json.loads(chunk)["choices"]:
            text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            for call in choice.get("delta", {}).get("tool_calls", []):
                fields = {key: value for key, value in call.items() if isinstance(value, str)}
                for name, part in (fields | call.get("function", {})).items():
                    known = calls.setdefault(call["index"], {})
                    known[name] = known.get(name, "") + (part or "")
        if b'"tool_calls":[' in chunk:
            continue
        form = re.sub(rb'"(?:content|text)":"(?:[^"\\]|\\.)*"', _SOME_TEXT, chunk)
        if b'"finish_reason":null' not in chunk:
            form = form.replace(b'"delta":{}', b'"delta":{%b}' % _SOME_TEXT)
        if not forms or forms[-1] != form:
            forms.append(form)
    return text, calls, forms


async def _token_ids(engine: Engine, text: str) -> list[int]:
    asked: dict[str, Any] = {"prompt": text, "max_tokens": 1, "return_token_ids": True}
    answer = await ask(engine, make_envelope(asked, api=Api.COMPLETIONS, stream=False))
    ids: list[int] = answer.body["choices"][0]["prompt_token_ids"]
    return ids


STREAM_CLAUSES: list[Clause] = [
    streams_of_plain_text_are_vllms_own,
    streams_with_log_probabilities_are_vllms_own_event_by_event,
    streams_with_tools_are_vllms_own,
]
