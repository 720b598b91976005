"""What data the trainer takes, and by which sentence and line it refuses the rest."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_workers.train_adapter.conversations import DataRefused, read_conversations

USER: dict[str, Any] = {"role": "user", "content": "When are you open?"}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "Monday to Friday."}
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}

IMAGE = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}


def of(*messages: object) -> bytes:
    return json.dumps({"messages": messages}).encode()


GOOD = of(USER, ASSISTANT)


def refusal(tmp_path: Path, content: bytes) -> DataRefused:
    file = tmp_path / "data.jsonl"
    file.write_bytes(content)
    with pytest.raises(DataRefused) as refused:
        read_conversations(file)
    assert str(file) in str(refused.value)
    return refused.value


def test_turns_are_read_in_order_with_text_parts_joined(tmp_path: Path) -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": a} for a in ("When", "?")]}
    file = tmp_path / "data.jsonl"
    file.write_bytes(b"\n".join([of(SYSTEM, parts, ASSISTANT, USER, ASSISTANT), GOOD]))
    first, second = read_conversations(file)
    assert [turn.role for turn in first.messages] == [
        "system", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert first.messages[1].text == "When?"
    assert len(second.messages) == 2


def test_lines_may_end_as_on_windows_and_hold_any_script(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    text = "Straße\u2028\u0085🜂"  # what str.splitlines would cut
    line = json.dumps({"messages": [USER, ASSISTANT | {"content": text}]}, ensure_ascii=False)
    file.write_bytes(line.encode() + b"\r\n" + GOOD + b"\r\n")
    assert [each.messages[1].text for each in read_conversations(file)] == [
        text,
        "Monday to Friday.",
    ]


def test_only_assistants_without_weight_0_are_learnt(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(of(USER, ASSISTANT | {"weight": 0}, USER, ASSISTANT | {"weight": 1}))
    (conversation,) = read_conversations(file)
    assert [turn.is_learnt for turn in conversation.messages] == [False, False, False, True]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", "empty_line"),
        (b"   ", "empty_line"),
        (b"hello", "not_json"),
        (b'{"messages": [', "not_json"),
        (GOOD + GOOD, "not_json"),
        (b"\xef\xbb\xbf" + GOOD, "not_json"),
        (GOOD.replace(b"Monday", b"\xff"), "not_json"),
        (GOOD.replace(b"Monday", b"\\ud800"), "not_json"),
        (b"[" * 100_000, "not_a_conversation"),
        (b"[]", "not_a_conversation"),
        (b"null", "not_a_conversation"),
        (b"{}", "not_a_conversation"),
        (b'{"prompt": "a", "completion": "b"}', "not_a_conversation"),
        (b'{"messages": []}', "not_a_conversation"),
        (b'{"messages": "hello"}', "not_a_conversation"),
        (of(USER | {"content": None}, ASSISTANT), "not_a_conversation"),
        (of(USER, ASSISTANT | {"tool_calls": []}), "not_a_conversation"),
        (of(USER, {"role": "tool", "content": "4"}), "not_a_conversation"),
        (of(USER | {"content": [IMAGE]}, ASSISTANT), "not_a_conversation"),
        (of(USER, ASSISTANT | {"weight": 0.5}), "not_a_conversation"),
        (of(ASSISTANT, USER), "roles_out_of_order"),
        (of(USER, USER, ASSISTANT), "roles_out_of_order"),
        (of(USER, ASSISTANT, ASSISTANT), "roles_out_of_order"),
        (of(USER, SYSTEM, ASSISTANT), "roles_out_of_order"),
        (of(SYSTEM, SYSTEM, USER, ASSISTANT), "roles_out_of_order"),
        (of(SYSTEM, ASSISTANT), "roles_out_of_order"),
        (of(SYSTEM), "no_answer"),
        (of(USER), "no_answer"),
        (of(USER, ASSISTANT, USER), "no_answer"),
        (of(USER | {"content": " \n"}, ASSISTANT), "empty_message"),
        (of(USER, ASSISTANT | {"content": ""}), "empty_message"),
        (of(USER, ASSISTANT | {"content": []}), "empty_message"),
        (of(USER | {"weight": 1}, ASSISTANT), "weight_out_of_place"),
        (of(USER, ASSISTANT | {"weight": 0}), "nothing_to_learn"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_by_its_number(tmp_path: Path, line: bytes, code: str) -> None:
    refused = refusal(tmp_path, GOOD + b"\n" + line + b"\n" + GOOD + b"\n")
    assert (refused.code, refused.line) == (code, 2)
    assert len(str(refused)) < 600


def test_an_empty_file_and_one_that_is_none_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, b"").code == "no_conversations"
    for file in (tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(DataRefused) as refused:
            read_conversations(file)
        assert (refused.value.code, refused.value.line) == ("unreadable", 0)
