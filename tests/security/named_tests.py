"""Tests that a page or a table names: `path`, a folder, `path::name`, or `path::name[clause]`,
where a parameter is the name of a function."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.support.places import ROOT

_FUNCTION = re.compile(r"(?m)^(?:async )?def (\w+)")


def exists(name: str) -> bool:
    """Return whether there is such a test; a path or a folder has to hold one."""
    path, _, function = name.partition("::")
    function, _, clause = function.partition("[")
    if clause and clause.rstrip("]") not in _clauses():
        return False
    place = ROOT / path
    files = sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    found = {each for file in files if file.is_file() for each in _tests(file)}
    return function in found if function else bool(found)


@cache
def _clauses() -> frozenset[str]:
    """The functions of what tests share."""
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "tests/support").rglob("*.py"))
    return frozenset(name for text in texts for name in _FUNCTION.findall(text))


@cache
def _tests(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = (node for node in tree.body if isinstance(node, kinds))
    return frozenset(each.name for each in functions if each.name.startswith("test_"))
