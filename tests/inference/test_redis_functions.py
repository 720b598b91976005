"""What Python and the Lua functions both go by is one and the same."""

import re
from collections import Counter

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import functions
from inference.admission.reservations import ReservationRequest
from inference.lua_constants import (
    CLASS_CEILINGS,
    CLASS_WEIGHTS,
    POOL_SUFFIXES,
    TENANT_SUFFIXES,
    Owner,
    RequestField,
    UseKind,
)
from inference.redis_functions import LIBRARIES, LuaLibrary, library_text
from tenants.models import ServiceClass
from tests.support.places import ROOT

COMMENT_OR_STRING = re.compile(r"--[^\n]*|'[^'\n]*'")
CONSTANT = re.compile(r"\b[A-Z][A-Z_]+\b")
DEFINITION = re.compile(r"^(?:local )?([A-Z][A-Z_]+) = ", re.MULTILINE)
FOLDER = ROOT / "inference"
OF_LIBRARY = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


def code_of(library: LuaLibrary) -> str:
    """What stands in the files, without what a constant's name may stand in and mean nothing."""
    texts = [(FOLDER / file).read_text(encoding="utf-8") for file in library.files]
    return COMMENT_OR_STRING.sub("", "\n".join(texts))


@OF_LIBRARY
def test_every_constant_in_lua_is_defined_once(library: LuaLibrary) -> None:
    defined = Counter(DEFINITION.findall(code_of(library)))
    defined.update(library.constants.keys())
    assert set(CONSTANT.findall(code_of(library))) == set(defined)
    assert set(defined.values()) == {1}


@OF_LIBRARY
def test_lua_uses_every_constant_that_it_has(library: LuaLibrary) -> None:
    mentions = Counter(CONSTANT.findall(code_of(library)))
    mentions.update(library.constants.keys())
    assert [name for name, count in mentions.items() if count == 1] == []


@OF_LIBRARY
async def test_lua_has_room_for_more_names(library: LuaLibrary, dispatch_redis: Redis) -> None:
    """It allows 200 local variables at a time in a text, and says so only when it is loaded."""
    names = ", ".join(f"another_{number}" for number in range(30))
    text = f"{library_text(library)}\nlocal {names}"
    assert await dispatch_redis.function_load(text, replace=True) == library.name.encode()


async def test_redis_has_the_functions_and_libraries_that_the_protocol_names(
    dispatch_redis: Redis,
) -> None:
    named_libraries = {functions.ADMISSION_LIBRARY, functions.DISPATCH_LIBRARY}
    named = {value for name, value in vars(functions).items() if name.isupper()} - named_libraries
    loaded = await dispatch_redis.function_list()
    libraries = [dict(zip(each[::2], each[1::2], strict=True)) for each in loaded]
    there = [entry[1] for library in libraries for entry in library[b"functions"]]
    assert {name.decode() for name in there} == named
    assert {library[b"library_name"].decode() for library in libraries} == named_libraries


@pytest.mark.parametrize(
    ("folder", "suffixes"),
    [("dispatch/lua", POOL_SUFFIXES), ("admission", TENANT_SUFFIXES)],
)
def test_no_suffix_of_a_key_is_written_twice(folder: str, suffixes: dict[str, str]) -> None:
    text = "".join(each.read_text() for each in (FOLDER / folder).glob("*.lua"))
    by_hand = set(re.findall(r"(?:prefix|tenant) \.\. '(:[a-z-]+:?)'", text))
    assert by_hand & set(suffixes.values()) == set()
    assert set(re.findall(r"\bSUFFIX\.(\w+)", text)) == set(suffixes)
    assert len(set(suffixes.values())) == len(suffixes)


def test_each_service_class_that_a_tier_may_have_has_a_weight_and_a_ceiling() -> None:
    assert list(CLASS_WEIGHTS) == list(CLASS_CEILINGS) == ServiceClass.values


def test_a_packed_request_begins_with_the_fields_that_lua_reads() -> None:
    names = [field.name.lower() for field in RequestField]
    assert names == list(ReservationRequest.__struct_fields__[: len(RequestField)])


def test_the_use_has_room_for_every_owner_of_each_kind() -> None:
    assert [*UseKind] == [len(Owner) * number for number in range(len(UseKind))]
