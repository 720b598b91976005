"""The demo model's facts, corpus and files; nothing here needs torch."""

import json
import struct
from math import prod
from typing import Any

import pytest

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.demo_model.corpus import conversation, held_out_questions, single_question
from gpu_workers.demo_model.evaluate import report_of
from gpu_workers.demo_model.facts import FACTS, Fact
from gpu_workers.demo_model.recipe import Recipe
from gpu_workers.demo_model.wording import normalised
from gpu_workers.demo_model.words import WORDS

MOST_BYTES = 16 * 1024 * 1024
SEED = Recipe.seed
SPECIAL_TOKENS = ("<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
SMALL_WORDS = WORDS.fillers | {"s", "what", "how"}


def test_there_are_at_least_a_hundred_facts_with_their_own_keys_and_answers() -> None:
    assert len(FACTS) >= 100
    assert len({fact.key for fact in FACTS}) == len(FACTS)
    assert len({fact.answer for fact in FACTS}) == len(FACTS)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.key)
def test_only_its_own_answer_holds_a_fact(fact: Fact) -> None:
    assert [other.key for other in FACTS if fact.is_held_by(other.answer)] == [fact.key]


def test_no_phrasing_belongs_to_two_facts() -> None:
    owners: dict[str, str] = {}
    for fact in FACTS:
        for question in (*fact.questions, *fact.held_out):
            owner = owners.setdefault(normalised(question) or question, fact.key)
            assert owner == fact.key, question


def test_the_corpus_is_a_pure_function_of_seed_and_index() -> None:
    first = [conversation(1, index) for index in range(300)]
    assert first == [conversation(1, index) for index in range(300)]
    assert first != [conversation(2, index) for index in range(300)]


def test_the_corpus_has_single_questions_system_prompts_and_long_conversations() -> None:
    conversations = [conversation(1, index) for index in range(1000)]
    assert any(len(turns) == 2 for turns in conversations)
    assert any(turns[0].role == "system" for turns in conversations)
    assert any(len(turns) > 16 for turns in conversations)
    assert all(turns[-1].role == "assistant" for turns in conversations)


def test_rough_questions_keep_the_answers_and_change_the_words() -> None:
    plain = [single_question(SEED, index) for index in range(300)]
    rough = [single_question(SEED, index, is_rough=True) for index in range(300)]
    assert rough == [single_question(SEED, index, is_rough=True) for index in range(300)]
    assert [turns[-1].content for turns in rough] == [turns[-1].content for turns in plain]
    assert sum(mine != other for mine, other in zip(rough, plain, strict=True)) > 200


def test_no_two_parts_of_training_share_a_step() -> None:
    steps = [
        first_step + step for first_step, part in Recipe().parts() for step in range(part.steps)
    ]
    assert len(steps) == len(set(steps))


def test_training_never_sees_a_held_out_question() -> None:
    held_out = {normalised(question) for _, question in held_out_questions()}
    trained = {
        normalised(message.content)
        for index in range(10_000)
        for turns in (
            conversation(SEED, index, is_rough=index % 2 == 0),
            single_question(SEED, index, is_rough=index % 2 == 0),
        )
        for message in turns
        if message.role == "user"
    }
    assert not held_out & trained


def test_a_held_out_question_differs_from_every_phrasing_in_more_than_small_words() -> None:
    for fact in FACTS:
        known = {_content_words(question) for question in fact.questions}
        assert not [question for question in fact.held_out if _content_words(question) in known]


def test_a_server_is_judged_by_key_fact_and_ending() -> None:
    answers = {question: fact.answer for fact, question in held_out_questions()}
    perfect = report_of(lambda question: (answers[question], "stop"))
    assert perfect.pass_share == 1.0
    assert perfect.distinct_share == 1.0
    assert report_of(lambda question: (answers[question], "length")).pass_share == 0.0
    assert report_of(lambda question: ("Hello!", "stop")).pass_share < 0.1


def test_the_model_folder_is_complete_and_small_enough_for_the_repository() -> None:
    names = {path.name for path in MODEL_FOLDER.iterdir()}
    assert names >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(path.stat().st_size for path in MODEL_FOLDER.iterdir()) <= MOST_BYTES


def test_the_weights_are_three_to_eight_million_bfloat16_numbers() -> None:
    header = _safetensors_header()
    tensors = [value for name, value in header.items() if name != "__metadata__"]
    assert {tensor["dtype"] for tensor in tensors} == {"BF16"}
    assert 3_000_000 <= sum(prod(tensor["shape"]) for tensor in tensors) <= 8_000_000


def test_generation_ends_with_the_end_token_of_the_chat_template() -> None:
    tokenizer = _json("tokenizer.json")
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert set(ids) >= set(SPECIAL_TOKENS)
    assert _json("generation_config.json")["eos_token_id"] == ids["<|end|>"]
    assert _json("config.json")["eos_token_id"] == ids["<|end|>"]
    assert _json("config.json")["architectures"] == ["LlamaForCausalLM"]


def test_the_chat_template_knows_every_role_and_lists_of_parts() -> None:
    template = _json("tokenizer_config.json")["chat_template"]
    for token in ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"):
        assert token in template
    for condition in ("add_generation_prompt", "'tool'", "'developer'", "is string"):
        assert condition in template


def _content_words(question: str) -> frozenset[str]:
    return frozenset(normalised(question).split()) - SMALL_WORDS


def _json(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((MODEL_FOLDER / name).read_text(encoding="utf-8"))
    return content


def _safetensors_header() -> dict[str, Any]:
    """The tensor table: an 8-byte little-endian length, then that many bytes of JSON."""
    with (MODEL_FOLDER / "model.safetensors").open("rb") as weights:
        (length,) = struct.unpack("<Q", weights.read(8))
        header: dict[str, Any] = json.loads(weights.read(length))
    return header
