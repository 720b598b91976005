"""The forms that the demo model fills in: data, conversations, how they are read and shown."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.data_file import DataFileError
from gpu_workers.demo_model.facts import FACTS
from gpu_workers.demo_model.forms import FORMS
from gpu_workers.demo_model.forms.corpus import filled_form, tool_call, tools_text
from gpu_workers.demo_model.forms.evaluate import (
    FormKind,
    forms_report,
    held_out_forms,
)
from gpu_workers.demo_model.forms.form import Filled, Schema, read_forms, said, schema_of, values_of
from gpu_workers.demo_model.recipe import Recipe

SEED = Recipe.seed
EACH_KIND = pytest.mark.parametrize("kind", list(FormKind))
FORM = """
[words]
drink = ["tea"]
[aliases]
drink = ["cup"]
[[form]]
key = "drink"
tools = ["pour"]
fields = ["drink"]
sentences = [
    "a {drink}", "b {drink}", "c {drink}", "d {drink}", "e {drink}", "f {drink}", "g {drink}",
]
held_out = ["h {drink}", "i {drink}"]
"""


def test_conversations_are_a_pure_function_of_seed_and_index() -> None:
    first = [filled_form(1, index) for index in range(300)]
    assert first == [filled_form(1, index) for index in range(300)]
    assert first != [filled_form(2, index) for index in range(300)]


def test_there_are_objects_calls_results_and_questions_that_no_tool_answers() -> None:
    conversations = [filled_form(SEED, index) for index in range(500)]
    answers = [turns[-1].content for turns in conversations]
    facts = {fact.answer for fact in FACTS}
    assert sum(answer.startswith("{") for answer in answers) > 150
    assert sum(answer.startswith("<tool_call>") for answer in answers) > 100
    assert sum(answer.startswith("The answer is: ") for answer in answers) > 20
    assert sum(answer in facts for answer in answers) > 20


def test_each_answer_is_one_object_in_as_few_characters_as_people_write() -> None:
    for index in range(300):
        answer = filled_form(SEED, index)[-1].content
        if answer.startswith("{"):
            assert answer == json.dumps(json.loads(answer), ensure_ascii=False)


def test_training_never_says_what_the_evaluation_does() -> None:
    held_out = {turns.turns[-1].content for kind in FormKind for turns in held_out_forms(kind)}
    trained = {turn.content for index in range(5000) for turn in filled_form(SEED, index)}
    assert not held_out & trained
    for form in FORMS.forms:
        assert not set(form.held_out) & set(form.sentences)


@EACH_KIND
def test_who_answers_right_passes_and_who_answers_otherwise_does_not(kind: FormKind) -> None:
    right = {form.turns: form.right for form in held_out_forms(kind)}
    report = forms_report(kind, Answering(right, "stop"))
    assert (report.share, report.wrong) == (1.0, ())
    assert forms_report(kind, Answering(right, "length")).share == 0.0
    blank = dict.fromkeys(right, "   \n")
    assert forms_report(kind, Answering(blank, "stop")).share == 0.0
    empty = dict.fromkeys(right, "{}")
    assert forms_report(kind, Answering(empty, "stop")).share == 0.0


def test_only_who_names_a_schema_is_helped_by_one_and_it_takes_the_right_answer() -> None:
    for kind in FormKind:
        right = {form.turns: form.right for form in held_out_forms(kind)}
        model = Answering(right, "stop")
        forms_report(kind, model)
        if kind is FormKind.SCHEMA:
            for schema, answer in zip(model.schemas, right.values(), strict=True):
                jsonschema.validate(json.loads(answer), schema)
        else:
            assert model.schemas == []


def test_the_schema_of_a_filled_form_takes_its_values() -> None:
    rng = random.Random(1)
    for form in FORMS.forms:
        filled = FORMS.filled(form, rng, alias_share=0.5)
        jsonschema.validate(values_of(filled.values()), schema_of(filled.values()))
        assert len(values_of(filled.values())) == len(form.fields)


def test_the_chat_template_shows_tools_and_calls_as_training_did() -> None:
    rng = random.Random(1)
    filled, other = (FORMS.filled(form, rng, alias_share=0.3) for form in FORMS.forms[:2])
    call = {"name": "first", "arguments": values_of(filled.values())}
    shown = render(
        [
            {"role": "user", "content": "Do it."},
            {"role": "assistant", "content": None, "tool_calls": [{"function": call}]},
            {"role": "tool", "content": "done"},
        ],
        tools=[function("first", filled), function("second", other)],
    )
    offered = tools_text([("first", filled.values()), ("second", other.values())])
    assert shown == (
        f"<|bos|><|system|>{offered}<|end|><|user|>Do it.<|end|>"
        f"<|assistant|>{tool_call('first', filled.values())}<|end|>"
        "<|user|>tool result: done<|end|><|assistant|>"
    )


@pytest.mark.parametrize(
    "parameters",
    [None, {}, {"type": "object"}, {"properties": {}}, {"properties": None}],
)
def test_a_tool_that_takes_nothing_is_shown_too(parameters: dict[str, Any] | None) -> None:
    tool = {"type": "function", "function": {"name": "now", "parameters": parameters}}
    assert render([], tools=[tool]) == "<|bos|><|system|>tools: now()<|end|><|assistant|>"


def test_a_field_whose_type_is_no_word_is_shown_as_a_string() -> None:
    fields = {"a": {"type": ["string", "null"]}, "b": {"enum": [1]}, "c": True}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": fields}}}
    assert "f(a: string, b: string, c: string)" in render([], tools=[tool])


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('"c {drink}"', '"c"', "has not all fields"),
        ('"c {drink}"', '"c {drink} {city}"', "has not all fields"),
        ('fields = ["drink"]', 'fields = ["food"]', "no words or no aliases"),
        ('drink = ["cup"]', "", "no words or no aliases"),
        (', "i {drink}"', "", "held_out"),
    ],
)
def test_a_form_that_is_not_whole_is_refused_by_name(
    tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    assert right in FORM
    file = tmp_path / "forms.toml"
    file.write_text(FORM.replace(right, wrong))
    with pytest.raises(DataFileError, match=told):
        read_forms(file)


def test_a_form_is_read_and_said(tmp_path: Path) -> None:
    file = tmp_path / "forms.toml"
    file.write_text(FORM)
    forms = read_forms(file)
    filled = forms.filled(forms.forms[0], random.Random(1), alias_share=1.0)
    assert said("{drink} and cake", filled) == "Tea and cake"
    assert values_of(filled.values()) == {"cup": "tea"}


class Answering:
    """A model that has an answer for each conversation."""

    def __init__(self, answers: dict[Any, str], finish_reason: str) -> None:
        self._answers = answers
        self._finish_reason = finish_reason
        self.schemas: list[Schema] = []

    def answers(self, conversations: Any, schemas: Sequence[Schema] = ()) -> list[tuple[str, str]]:
        self.schemas = list(schemas)
        return [(self._answers[turns], self._finish_reason) for turns in conversations]


def function(name: str, filled: Filled) -> dict[str, Any]:
    parameters = schema_of(filled.values())
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def render(messages: list[dict[str, Any]], **given: Any) -> str:
    """As transformers renders the template of the model in the repository."""
    config = json.loads((MODEL_FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(config["chat_template"])
    return template.render(
        messages=messages, bos_token="<|bos|>", add_generation_prompt=True, **given
    )
