"""How large a structure may be that an answer has to follow: a JSON schema, a regular expression, a
list of choices or a grammar.

Its worker compiles it into an automaton and walks that with every token, so it costs before and
while an answer is generated. What is bounded here is what can be told without a vocabulary; the
worker judges the rest by compiling it, off its event loop and for so long (docs/api-limits.md).
"""

import re
from typing import Any, Final

import msgspec

from inference.errors import InvalidRequest

MAX_BYTES: Final = 64 * 1024
# Objects and arrays in one another: vLLM takes as many.
MAX_DEPTH: Final = 64
# Nodes of a schema, characters of a pattern, each times the repetitions that it stands in.
MAX_STATES: Final = 10_000

# Parts of a pattern or grammar that may be left out. The matcher's work for a token grows with the
# square of those that follow one another: 12 ms at 100, 48 ms at 200, 2.9 s at 1,000.
MAX_OPTIONAL: Final = 256

# What is not closed ends with its line, so that no text is read twice.
_LITERAL_OR_CLASS: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|\[(?:[^\]\\\n]|\\.)*\]?')
_ESCAPED_OR_CLASS: Final = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]?", re.DOTALL)
_OPTIONAL: Final = re.compile(r"(?<!\()\?|\*|\{0?,", re.ASCII)
_REPETITION: Final = re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII)
_PATTERNS: Final = "patternProperties"


def check_schema(schema: Any, param: str) -> None:
    """Check a JSON schema, or what else has some in it. Raises `InvalidRequest`."""
    _check("bytes of JSON", len(_encoded(schema, param)), MAX_BYTES, param)
    depth, states = _measure(schema)
    _check("levels of objects and arrays", depth, MAX_DEPTH, param)
    _check("states", states, MAX_STATES, param)


def check_schema_text(text: str, param: str) -> None:
    """Check the same as text. Raises `InvalidRequest`."""
    _check("bytes of JSON", len(text.encode()), MAX_BYTES, param)
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{param!r} must be a JSON schema: {error}.", param=param) from None
    check_schema(schema, param)


def check_pattern(pattern: str, param: str) -> None:
    """Check a regular expression. Raises `InvalidRequest`."""
    _check("states", pattern_states(pattern), MAX_STATES, param)
    _check_optional(_ESCAPED_OR_CLASS.sub("a", pattern), param)


def check_grammar(grammar: str, param: str) -> None:
    """Check a grammar, each rule as if it were a pattern; what its rules make of one another is for
    the worker to judge. Raises `InvalidRequest`."""
    items = _LITERAL_OR_CLASS.sub(_plain, grammar)
    _check("states", pattern_states(items), MAX_STATES, param)
    _check_optional(items, param)


def check_choices(choices: list[str], param: str) -> None:
    """Check the texts of which the answer is one. Raises `InvalidRequest`."""
    _check("bytes", sum(len(choice.encode()) for choice in choices), MAX_BYTES, param)


def _plain(item: "re.Match[str]") -> str:
    """Return a literal, or a character class, as letters."""
    return "a" * (len(item[0]) - 2 if item[0].startswith('"') else 1)


def _check_optional(pattern: str, param: str) -> None:
    _check("optional parts", len(_OPTIONAL.findall(pattern)), MAX_OPTIONAL, param)


def pattern_states(pattern: str) -> int:
    """Return about how many states a regular expression has: each character one, times what it is
    repeated at most. What is no expression at all is counted too; the worker refuses it."""
    before: list[int] = []  # of each open group: the states before it
    total = last = position = 0
    while position < len(pattern):
        character = pattern[position]
        repetition = _REPETITION.match(pattern, position) if character == "{" else None
        if repetition is not None:
            last *= _most_repetitions(repetition)
            position = repetition.end()
            continue
        if character in "*+?":
            position += 1
            continue
        total += last
        last = 1
        if character == "(":
            before.append(total)
            total = last = 0
        elif character == ")":
            # `last` has been added to `total`: the group is the last item now.
            group, total = total, before.pop() if before else 0
            last = group
        elif character == "[":
            position = _end_of_class(pattern, position)
        elif character == "\\":
            position += 1
        position += 1
    return sum(before) + total + last


def _most_repetitions(repetition: "re.Match[str]") -> int:
    least, comma, most = repetition.groups()
    return max(1, _number(least) + (comma == "," and not most), _number(most))


def _number(digits: str) -> int:
    """Return the number, or one that is too large anyway."""
    return int(digits or 0) if len(digits) < len(str(MAX_STATES)) + 1 else MAX_STATES + 1


def _end_of_class(pattern: str, start: int) -> int:
    """Return where the character class that begins here ends."""
    position = start + 1
    position += pattern[position : position + 1] == "^"
    position += pattern[position : position + 1] == "]"
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position


def _measure(schema: Any) -> tuple[int, int]:
    """Return how deep a schema is, and its states. Stops where it is too deep or has too many."""
    deepest = states = 0
    level: list[Any] = [schema]
    while level and deepest <= MAX_DEPTH and states <= MAX_STATES:
        below: list[Any] = []
        for node in level:
            states += 1
            if isinstance(node, dict):
                below += node.values()
                pattern, patterns = node.get("pattern"), node.get(_PATTERNS)
                states += pattern_states(pattern) if isinstance(pattern, str) else 0
                states += sum(map(pattern_states, patterns)) if isinstance(patterns, dict) else 0
            elif isinstance(node, list):
                below += node
        deepest += any(isinstance(node, dict | list) for node in level)
        level = below
    return deepest, states


def _encoded(value: Any, param: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{param!r} cannot be passed on: {error}.", param=param) from None


def _check(what: str, count: int, most: int, param: str) -> None:
    if count > most:
        raise InvalidRequest(
            f"{param!r} has {count} {what} or more, and may have {most}. Make it smaller, or ask "
            "for its parts one by one.",
            param=param,
            code="structure_too_large",
        )
