"""The house is as ARCHITECTURE.md draws it: its map is the tree, rooms stay small, no import runs
in a circle, and what CONTRIBUTING.md describes is there."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import grimp
import pytest

from tests.support.places import ROOT

PACKAGES = ("control_plane", "local_stack", "inference", "tenants", "gpu_workers")
SOURCE_ROOTS = ("platform", "inference", "tenants", "gpu_workers", "templates", "tests")
SOURCE_SUFFIXES = {".py", ".lua", ".sql", ".html", ".css", ".js"}
MOST_LINES = 400
MOST_FILES = 20
MOST_FILES_OF_A_CHANGE = 8
MOST_FILES_OF_A_VERB = 6
# Django writes them, nobody reads them top-down.
GENERATED = "migrations"
# Rooms that every Django app has, and data: the map need not name them.
CLOSED_ROOMS = {"migrations", "management", "models", "admin", "facts", "static", "templates"}


def tracked_files() -> list[PurePosixPath]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [PurePosixPath(line) for line in listing.stdout.splitlines() if (ROOT / line).is_file()]


def mapped_paths(page: str) -> Iterator[str]:
    """What the map names, folders with a `/` at their end. A line is a name, or several, then two
    spaces, then what is said of it; a name stands in the folder above it with less indent."""
    fence = page.split("```", 2)[1]
    above: list[tuple[int, str]] = []
    for line in fence.splitlines():
        names, _, _ = line.strip().partition("  ")
        indent = len(line) - len(line.lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        folder = "".join(name for _, name in above)
        for name in names.split():
            yield folder + name
        if names.endswith("/") and " " not in names:
            above.append((indent, names))


def rooms() -> set[str]:
    """Return every folder with sources of the product, but for the closed rooms."""
    folders: set[str] = set()
    for path in tracked_files():
        if path.parts[0] in SOURCE_ROOTS[:-1] and path.suffix in SOURCE_SUFFIXES:
            for parent in path.parents:
                if parent.parts and not CLOSED_ROOMS.intersection(parent.parts):
                    folders.add(f"{parent}/")
    return folders


def test_the_map_names_only_what_is_there() -> None:
    mapped = set(mapped_paths((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    there = {str(path) for path in tracked_files()}
    there |= {f"{parent}/" for path in tracked_files() for parent in path.parents}
    assert sorted(mapped - there) == []


def test_every_room_is_on_the_map() -> None:
    mapped = set(mapped_paths((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    assert sorted(rooms() - mapped) == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\((\d{4}-[a-z0-9-]+\.md)\)", index)
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))


def test_no_room_has_more_than_twenty_files() -> None:
    files: dict[str, int] = {}
    for path in tracked_files():
        is_source = path.parts[0] in SOURCE_ROOTS and path.suffix in SOURCE_SUFFIXES
        if is_source and path.name != "__init__.py" and GENERATED not in path.parts:
            files[str(path.parent)] = files.get(str(path.parent), 0) + 1
    assert {room: count for room, count in files.items() if count > MOST_FILES} == {}


def test_no_file_has_more_than_four_hundred_lines() -> None:
    lines = {
        str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines())
        for path in tracked_files()
        if path.parts[0] in SOURCE_ROOTS
        and path.suffix in SOURCE_SUFFIXES
        and GENERATED not in path.parts
    }
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_import_runs_in_a_circle() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert strongly_connected(imports) == []


def strongly_connected(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach one another, by Tarjan's algorithm (SIAM Journal on
    Computing 1, 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for imported in imports.get(module, ()):
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in stack:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found


def test_a_circle_would_be_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert strongly_connected(imports) == [["a", "b", "c"]]


def changes_described() -> dict[str, list[str]]:
    """The files of each change that CONTRIBUTING.md describes, by its heading."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split("\n## Four changes\n", 1)[1].split("\n## ", 1)[0]
    parts = re.split(r"\n### (.+)\n", section)[1:]
    return {
        heading: re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.mark.parametrize("change", changes_described())
def test_a_described_change_touches_few_files_and_they_exist(change: str) -> None:
    files = changes_described()[change]
    most = MOST_FILES_OF_A_VERB if change == "A verb at all doors" else MOST_FILES_OF_A_CHANGE
    assert 0 < len(files) <= most
    assert [file for file in files if not Path(ROOT, file).is_file()] == []
