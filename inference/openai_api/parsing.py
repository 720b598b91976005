"""JSON bodies into structs, and what is wrong with one in terms that its author understands."""

import re
import unicodedata
from typing import Any, Final, TypeVar

import msgspec

from inference.errors import InvalidRequest
from inference.openai_api.hints import choices_at, nearest_field

_T = TypeVar("_T")

_AT_PATH: Final = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)
_NAMED: Final = re.compile(r"(unknown|missing required) field `(?P<name>[^`]*)`")
_STEP: Final = re.compile(r"[^.\[\]]+")
_SHOWN_CHARACTERS: Final = 80

ROLES: Final = "system, developer, user, assistant, tool, function"
_EXPECTED_AT: Final = (
    (re.compile(r"messages\[\d+\]\.role$"), f"one of {ROLES}"),
    (re.compile(r"content\[\d+\]\.type$"), "'text': only text content is served"),
    (re.compile(r"tools\[\d+\]\.type$"), "'function': only function tools are served"),
    (re.compile(r"tool_choice(\.type)?$"), "'none', 'auto', 'required' or a named function"),
    (
        re.compile(r"response_format\.type$"),
        "one of 'text', 'json_object', 'json_schema', 'structural_tag'",
    ),
    (
        re.compile(r"reasoning_effort$"),
        "one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'",
    ),
)


def max_tokens_in(text: str) -> int:
    """Return the most tokens that a text can have: a token covers a byte or more of it in UTF-8, or
    of its composed form, which some tokenizers make first and which can be longer."""
    if text.isascii():
        return len(text)
    length = len(text.encode())
    if unicodedata.is_normalized("NFC", text):
        return length
    return max(length, len(unicodedata.normalize("NFC", text).encode()))


def decode(data: bytes, decoder: "msgspec.json.Decoder[_T]") -> _T:
    """Return the struct. Raises `InvalidRequest`, which names the field, what it takes and what it
    got."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise as_invalid_request(str(error), data, decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The body must be one JSON object in UTF-8: {error}.") from None
    except RecursionError:
        raise InvalidRequest("The body's JSON is nested too deeply.") from None


def encode(value: Any, param: str | None = None) -> bytes:
    """Encode JSON for the engine. A number that JSON could name but no engine can take is
    refused."""
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The body cannot be passed on: {error}.", param=param) from None


def as_invalid_request(text: str, data: bytes, root: Any) -> InvalidRequest:
    """Return what msgspec said of these bytes, as the API says it, with what they could have said
    instead. `root` is the type that they were read into."""
    match = _AT_PATH.match(text)
    what, path = (match["what"], match["path"].removesuffix("[...]")) if match else (text, "")
    if named := _NAMED.search(what):
        param = _shortened(f"{path}.{named['name']}" if path else named["name"])
        if named[1] == "unknown":
            near = nearest_field(root, path, named["name"])
            hint = f" Did you mean {near!r}?" if near else ""
            return InvalidRequest(
                f"Unknown parameter {param!r}.{hint}",
                param=param,
                code="unknown_field",
            )
        return InvalidRequest(f"{param!r} is required.", param=param, code="missing_field")
    expected = next((text for place, text in _EXPECTED_AT if place.search(path)), None)
    if expected is None and (choices := choices_at(root, path)):
        expected = f"one of {', '.join(map(repr, choices))}"
    if expected is not None and not what.startswith("Object"):
        what = f"expected {expected}"
    what = what[0].lower() + what[1:].replace("`", "")
    if not path:
        return InvalidRequest(f"The body is invalid: {what}.")
    got = None if ", got" in what else _value_at(path, data)
    return InvalidRequest(f"{path!r}: {what}{f', got {got}' if got else ''}.", param=path)


def _value_at(path: str, data: bytes) -> str | None:
    """Return the value that stands there, cut short. Only on the way to a refusal, so it may
    cost."""
    try:
        value: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    try:
        for step in _STEP.findall(path):
            value = value[int(step)] if isinstance(value, list) else value[step]
    except (KeyError, IndexError, ValueError, TypeError):
        return None
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    return _shortened(msgspec.json.encode(value).decode())


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
