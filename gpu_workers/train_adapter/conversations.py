"""Conversations to learn from, in OpenAI's chat format, read strictly: what is wrong is refused."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant"]

FORMAT: Final = (
    'Expected a conversation such as {"messages": [{"role": "user", "content": "Hello"}, '
    '{"role": "assistant", "content": "Hi"}]}'
)


class DataRefused(ValueError):
    """The data cannot be trained on. `code` says why, `line` where, from 1; 0 is the whole file."""

    def __init__(self, code: str, reason: str, *, file: Path, line: int = 0) -> None:
        super().__init__(f"{file}, line {line}: {reason}." if line else f"{file}: {reason}.")
        self.code = code
        self.line = line


class TextPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a content that is a list; nothing but text is trained on."""

    type: Literal["text"]
    text: str


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message. `weight` 0 keeps an assistant's turn out of the loss."""

    role: Role
    content: str | list[TextPart]
    weight: Literal[0, 1] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)

    @property
    def is_learnt(self) -> bool:
        return self.role == "assistant" and self.weight != 0


class Conversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages of a line: perhaps a system turn, then user and assistant in turns."""

    messages: Annotated[list[Turn], msgspec.Meta(min_length=1)]


_decoder: Final = msgspec.json.Decoder(Conversation)


def read_conversations(file: Path) -> list[Conversation]:
    """Return the conversation of each line; raises DataRefused for the first line that has none."""
    try:
        conversations = list(_conversations(file))
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}. Expected a file with JSON lines"
        raise DataRefused("unreadable", reason, file=file) from error
    if not conversations:
        raise DataRefused("no_conversations", f"it is empty. {FORMAT} on each line", file=file)
    return conversations


def _conversations(file: Path) -> Iterator[Conversation]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield _conversation(line)
            except _Wrong as wrong:
                raise DataRefused(*wrong.args, file=file, line=number) from wrong.__cause__


class _Wrong(Exception):
    """Code and reason of a refusal."""


def _conversation(line: bytes) -> Conversation:
    if not line.strip():
        raise _Wrong("empty_line", f"the line is empty. {FORMAT}")
    try:
        conversation = _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise _Wrong("not_a_conversation", f"{error}. {FORMAT}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Wrong("not_json", f"it is not JSON: {error}. {FORMAT}") from error
    _check_turns(conversation.messages)
    return conversation


def _check_turns(turns: Sequence[Turn]) -> None:
    has_system = turns[0].role in ("system", "developer")
    for place, turn in enumerate(turns, start=1):
        if not (place == 1 and has_system):
            expected = ("user", "assistant")[(place - 1 - has_system) % 2]
            if turn.role != expected:
                raise _Wrong(
                    "roles_out_of_order",
                    f"message {place} is of role '{turn.role}', expected '{expected}': a system "
                    "message may come first, then user and assistant take turns",
                )
        if not turn.text.strip():
            raise _Wrong(
                "empty_message", f"message {place} ({turn.role}) has no text; expected some"
            )
        if turn.weight is not None and turn.role != "assistant":
            raise _Wrong(
                "weight_out_of_place",
                f"message {place} ({turn.role}) has a weight; expected one on assistants' alone",
            )
    if turns[-1].role != "assistant":
        raise _Wrong(
            "no_answer", f"the last message is of role '{turns[-1].role}', expected 'assistant'"
        )
    if not any(turn.is_learnt for turn in turns):
        raise _Wrong("nothing_to_learn", "every answer has weight 0; expected one of weight 1")
