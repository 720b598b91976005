"""What an answer has to follow is bounded before anything is reserved."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.openai_api.structures import MAX_BYTES, MAX_DEPTH, MAX_STATES, pattern_states
from tests.support.gateways.cast import MODEL
from tests.support.gateways.chat_request import CHAT, GOOD
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service

COMPLETIONS = "/v1/completions"


def nested(levels: int) -> dict[str, Any]:
    """So many objects in one another."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    }


def structured(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


def tool(parameters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters} | fields}


LONG = {"enum": ["x" * MAX_BYTES]}
DEEP = nested(MAX_DEPTH + 1)
WIDE = {"enum": [1] * MAX_STATES}
PATTERN = {"type": "string", "pattern": "^(a{1,100}){1,101}$"}
IN_A_KEY = {"type": "object", "patternProperties": {"(a{1,100}){1,101}": {}}}

REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        (response_format(schema), "response_format.json_schema.schema")
        for schema in (LONG, DEEP, WIDE, PATTERN, IN_A_KEY)
    ),
    *((structured(json=schema), "structured_outputs.json") for schema in (LONG, DEEP, WIDE)),
    (structured(json='{"pattern": "a{10001}"}'), "structured_outputs.json"),
    (structured(json='"' + "x" * MAX_BYTES + '"'), "structured_outputs.json"),
    (structured(regex="((a{0,50}){0,50}){0,50}"), "structured_outputs.regex"),
    (structured(regex="[a-z]{999999999}"), "structured_outputs.regex"),
    (structured(regex="a{" + "9" * 4000 + "}"), "structured_outputs.regex"),
    (structured(regex="(a|b)?" * 257), "structured_outputs.regex"),
    (structured(grammar="root ::= " + ' ("a" | "b")?' * 257), "structured_outputs.grammar"),
    (structured(grammar="root ::= " + ' "a"*' * 257), "structured_outputs.grammar"),
    (structured(grammar="root ::= " + ' "a"{0,1}' * 257), "structured_outputs.grammar"),
    (structured(grammar='root ::= ("a" | "b"){0,5000}'), "structured_outputs.grammar"),
    (
        structured(grammar='root ::= ((("a"){0,50}){0,50} "{1}"){0,50}'),
        "structured_outputs.grammar",
    ),
    (structured(grammar='root ::= (a b c d e f g h "("){0,5000}'), "structured_outputs.grammar"),
    (structured(grammar='"\\' * (MAX_BYTES // 2)), "structured_outputs.grammar"),
    (structured(choice=["x" * 1000] * 66), "structured_outputs.choice"),
    (
        structured(structural_tag='{"format": {"schema": ' + "[" * 70 + "]" * 70 + "}}"),
        "structured_outputs.structural_tag",
    ),
    ({"response_format": {"type": "structural_tag", "format": WIDE}}, "response_format"),
    ({"response_format": {"type": "structural_tag", "structures": [DEEP]}}, "response_format"),
    ({"tools": [tool(WIDE)], "tool_choice": "required"}, "tools"),
    (
        {
            "tools": [tool(DEEP)],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        "tools",
    ),
    ({"tools": [tool(PATTERN, strict=True)]}, "tools"),
]

TAKEN: list[dict[str, Any]] = [
    response_format(nested(MAX_DEPTH)),
    response_format({"enum": ["x" * (MAX_BYTES - 100)]}),
    response_format({"type": "string", "pattern": "^[a-z]{1,64}(-[a-z]{1,64}){0,20}$"}),
    response_format({"type": "array", "minItems": 10**6, "maxItems": 10**6}),
    structured(json='{"type": "object"}'),
    structured(choice=["yes", "no"]),
    structured(regex="[0-9]{1,4000}"),
    structured(regex=r"(?:[?*]|\?){1,9}" * 200),
    structured(grammar="root ::= [a-z]{0,5000}"),
    structured(grammar="[" * MAX_BYTES),
    structured(grammar='root ::= "?*{0,5}" [?*"] ' * 200),
    {"tools": [tool(WIDE)]},
    {"tools": [tool(WIDE), tool({}, strict=True)], "tool_choice": "auto"},
    {"tools": [tool(WIDE)], "tool_choice": "none"},
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_a_structure_that_is_too_large_is_refused(
    service: Service, worker: ScriptedWorker, fields: dict[str, Any], param: str
) -> None:
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=GOOD | fields)
        if "tools" not in fields:
            body = {"model": MODEL, "prompt": "Count."} | fields
            assert (await client.post(COMPLETIONS, json=body)).json() == answer.json()
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("structure_too_large", param)
    assert worker.runs == {}


@pytest.mark.parametrize("fields", TAKEN)
async def test_what_is_within_the_bounds_is_taken(
    service: Service, worker: ScriptedWorker, fields: dict[str, Any]
) -> None:
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=GOOD | fields)
    assert answer.status_code == 200, answer.text


async def test_a_schema_as_text_that_is_no_json_names_its_field(service: Service) -> None:
    async with service.client() as client:
        answer = await client.post(CHAT, json=GOOD | structured(json="{"))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "structured_outputs.json"


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}", 3),
        ("a{2,}", 3),
        ("a{,7}", 7),
        ("a{2,7}b", 8),
        ("(ab){10}", 20),
        ("((a{2}){3}){4}c", 25),
        ("(a|bc){5}", 20),
        ("[a-z{9}]{4}", 4),
        ("[]a]{4}", 4),
        ("[^]]b", 2),
        (r"\d{5}\(a\)", 8),
        (r"[\]]{6}", 6),
        ("a{x}", 4),
        ("{3}", 0),
        ("a*b+c?", 3),
        ("a)b(c", 3),
    ],
)
def test_a_pattern_has_as_many_states_as_characters_times_repetitions(
    pattern: str, states: int
) -> None:
    assert pattern_states(pattern) == states


@given(st.text(alphabet="ab(){}[]\\|,019*?^", max_size=40))
def test_any_text_has_a_number_of_states(pattern: str) -> None:
    assert pattern_states(pattern) >= 0


@given(st.text(alphabet="abc", min_size=1, max_size=5), st.integers(1, 50), st.integers(1, 50))
def test_repetitions_in_one_another_multiply(text: str, inner: int, outer: int) -> None:
    assert pattern_states(f"(({text}){{{inner}}}){{0,{outer}}}") == len(text) * inner * outer
