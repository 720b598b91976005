"""Names of the API's parameters, as what is wrong with a request is known by where the caller's own
words must not stand."""

import re
from typing import Final

import msgspec

from inference.openai_api.chat_request import ChatBody
from inference.openai_api.completion_request import CompletionBody

_ROOT: Final = re.compile(r"[a-z_]+", re.ASCII)
_KNOWN: Final = frozenset(
    field.encode_name
    for body in (ChatBody, CompletionBody)
    for field in msgspec.structs.fields(body)
)


def known_parameter(param: str | None) -> str | None:
    """Return the parameter that a path begins with, as `messages` of `messages[0].content`; None
    where it is none of ours, and so may be anything."""
    root = _ROOT.match(param or "")
    return root[0] if root is not None and root[0] in _KNOWN else None
