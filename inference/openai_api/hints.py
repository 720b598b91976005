"""What a body could have said instead: the names and choices of the struct that it is read into."""

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from msgspec import inspect

_STEP: Final = re.compile(r"[^.\[\]]+")


def nearest_field(root: type, path: str, name: str) -> str | None:
    """Return the field of the object at this path (as `messages[0]`, "" for the body) whose name is
    most like this one; None if none is."""
    names = [
        field.encode_name
        for each in _types_at(root, path)
        if isinstance(each, inspect.StructType)
        for field in each.fields
    ]
    return next(iter(difflib.get_close_matches(name[:64], names, n=1, cutoff=0.7)), None)


def choices_at(root: type, path: str) -> list[str]:
    """Return what the field at this path can be, if it is one of some words; else nothing."""
    choices: list[str] = []
    for each in _types_at(root, path):
        if isinstance(each, inspect.LiteralType):
            choices += map(str, each.values)
        elif isinstance(each, inspect.EnumType):
            choices += [str(member.value) for member in each.cls]
    return choices


def _types_at(root: type, path: str) -> list[inspect.Type]:
    types = list(_alternatives(_described(root)))
    for step in _STEP.findall(path):
        types = [found for each in types for found in _inside(each, step)]
    return types


@lru_cache(maxsize=16)
def _described(root: type) -> inspect.Type:
    return inspect.type_info(root)


def _inside(each: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(each, inspect.StructType):
        for field in each.fields:
            if field.encode_name == step:
                yield from _alternatives(field.type)
    elif isinstance(each, inspect.ListType):
        yield from _alternatives(each.item_type)
    elif isinstance(each, inspect.DictType):
        yield from _alternatives(each.value_type)


def _alternatives(each: Any) -> Iterator[inspect.Type]:
    if isinstance(each, inspect.UnionType):
        for one in each.types:
            yield from _alternatives(one)
    elif isinstance(each, inspect.Metadata):
        yield from _alternatives(each.type)
    else:
        yield each
