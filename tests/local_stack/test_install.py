"""Installs by the real uv, of wheels made here, from an index on this disk."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_stack.installation import pip_settings, uv
from local_stack.installation.environments import CONTROL_PLANE, Environment
from local_stack.installation.install import Install, wait_until_made
from local_stack.installation.install_errors import InstallError, InstallProblem
from local_stack.installation.progress import Progress
from local_stack.installation.uv import Uv

from tests.local_stack.wheels import Wheel, make_index, make_wheel
from tests.support.polling import eventually_sync

ENVIRONMENT = Environment(
    folder=".venv",
    lock="lock.txt",
    pythons=(sys.version_info[:2],),
    needed_bytes=1,
    source_roots=(".",),
    has_cpu_torch=True,
)


@pytest.fixture
def wheels(tmp_path: Path) -> dict[str, Wheel]:
    names = [("alpha", "1.0"), ("alpha", "2.0"), ("beta", "1.0"), ("torch", "2.13.0")]
    folder = tmp_path / "wheels"
    made = {f"{name} {version}": make_wheel(folder, name, version) for name, version in names}
    cpu = make_wheel(tmp_path / "whl" / "torch", "torch", "2.13.0+cpu")
    return made | {"torch +cpu": cpu}


@pytest.fixture
def index(tmp_path: Path, wheels: dict[str, Wheel]) -> str:
    """What public indexes are: they have torch, but not its CPU build."""
    public = [wheel for name, wheel in wheels.items() if name != "torch +cpu"]
    return make_index(tmp_path / "index", *public)


@pytest.fixture
def tool(tmp_path: Path, index: str) -> Uv:
    given = {name: text for name, text in os.environ.items() if not name.startswith("UV_")}
    settings = {"UV_DEFAULT_INDEX": index, "UV_CACHE_DIR": str(tmp_path / "uv-cache")}
    return Uv(program=Path(sys.executable).with_name("uv"), environ=given | settings)


def run(root: Path, tool: Uv, *wheels: Wheel) -> None:
    (root / "lock.txt").write_text("".join(wheel.pinned for wheel in wheels))
    install = Install(root, ENVIRONMENT, tool)
    try:
        install.start()
        eventually_sync(install.poll, timeout_seconds=30)
    finally:
        install.stop()


def ask(root: Path, question: str) -> str:
    python = ENVIRONMENT.python(root)
    done = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def installed(root: Path) -> str:
    return ask(
        root,
        "import importlib.metadata as m; "
        "print(*sorted(f'{d.name}=={d.version}' for d in m.distributions()))",
    )


def test_an_environment_holds_its_lock_and_the_checkout(
    root: Path, tool: Uv, wheels: dict[str, Wheel]
) -> None:
    run(root, tool, wheels["alpha 1.0"], wheels["beta 1.0"])
    assert ENVIRONMENT.is_made(root)
    assert installed(root) == "alpha==1.0 beta==1.0"
    assert str(root.resolve()) in ask(root, "import sys; print(sys.path)")


def test_another_lock_changes_what_differs_and_removes_what_it_lacks(
    root: Path, tool: Uv, wheels: dict[str, Wheel]
) -> None:
    run(root, tool, wheels["alpha 1.0"], wheels["beta 1.0"])
    config = ENVIRONMENT.path(root) / "pyvenv.cfg"
    made_at = config.stat().st_mtime_ns
    run(root, tool, wheels["alpha 2.0"])
    assert installed(root) == "alpha==2.0"
    assert config.stat().st_mtime_ns == made_at


def test_what_was_interrupted_is_made_again(root: Path, tool: Uv, wheels: dict[str, Wheel]) -> None:
    run(root, tool, wheels["alpha 1.0"])
    ENVIRONMENT.stamp_path(root).unlink()
    [module] = ENVIRONMENT.path(root).glob("lib/python*/site-packages/alpha.py")
    module.unlink()
    assert "alpha" in installed(root)
    run(root, tool, wheels["alpha 1.0"])
    assert ask(root, "import alpha; print(alpha.VERSION)") == "1.0"


def test_an_environment_whose_python_is_broken_is_made_again(
    root: Path, tool: Uv, wheels: dict[str, Wheel]
) -> None:
    run(root, tool, wheels["alpha 1.0"])
    ENVIRONMENT.python(root).unlink()
    ENVIRONMENT.python(root).write_text("half")
    run(root, tool, wheels["alpha 2.0"])
    assert installed(root) == "alpha==2.0"


def test_a_package_of_another_hash_is_refused(
    root: Path, tool: Uv, wheels: dict[str, Wheel]
) -> None:
    other = Wheel(
        file=wheels["alpha 1.0"].file,
        pinned=wheels["alpha 1.0"].pinned[:-5] + "0000\n",
    )
    with pytest.raises(InstallError) as refused:
        run(root, tool, other)
    assert refused.value.problem == InstallProblem.HASH_MISMATCH
    assert not ENVIRONMENT.is_made(root)


def test_a_lock_without_hashes_is_refused(root: Path, tool: Uv, wheels: dict[str, Wheel]) -> None:
    bare = Wheel(file=wheels["alpha 1.0"].file, pinned="alpha==1.0\n")
    with pytest.raises(InstallError, match="--require-hashes"):
        run(root, tool, bare)


def test_the_cpu_build_of_torch_comes_from_its_own_index_where_others_lack_it(
    root: Path,
    tool: Uv,
    tmp_path: Path,
    wheels: dict[str, Wheel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_TORCH_CPU_INDEX", (tmp_path / "whl").as_uri())
    run(root, tool, wheels["alpha 1.0"], wheels["torch +cpu"])
    assert installed(root) == "alpha==1.0 torch==2.13.0+cpu"


def test_a_torch_that_no_index_has_is_told_with_what_to_set(
    root: Path,
    tool: Uv,
    tmp_path: Path,
    wheels: dict[str, Wheel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_TORCH_CPU_INDEX", (tmp_path / "wheels").as_uri())
    (tmp_path / "wheels" / "torch").mkdir()
    with pytest.raises(InstallError, match="PENSTOCK_TORCH_CPU_INDEX") as refused:
        run(root, tool, wheels["torch +cpu"])
    assert refused.value.problem == InstallProblem.CPU_TORCH_MISSING


# Two at once -------------------------------------------------------------------------------------


@pytest.fixture
def in_the_making(root: Path, tool: Uv, tmp_path: Path) -> Iterator[Install]:
    """An install whose uv never ends."""
    program = tmp_path / "uv-that-waits"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = venv ] && exec "{tool.program}" "$@"\nexec sleep 600\n'
    )
    program.chmod(0o755)
    (root / "lock.txt").write_text("# nothing\n")
    install = Install(root, ENVIRONMENT, Uv(program=program, environ=tool.environ))
    install.start()
    yield install
    install.stop()


def test_a_second_install_of_the_same_environment_is_told_to_wait(
    root: Path, tool: Uv, in_the_making: Install
) -> None:
    second = Install(root, ENVIRONMENT, tool)
    with pytest.raises(InstallError) as refused:
        second.start()
    assert refused.value.problem == InstallProblem.BEING_INSTALLED
    assert not in_the_making.poll()


class WritesStamp(io.StringIO):
    """A stream that makes the environment complete when something is written to it."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def write(self, text: str) -> int:
        ENVIRONMENT.stamp_path(self._root).write_text(ENVIRONMENT.stamp(self._root))
        return super().write(text)


def test_who_needs_an_environment_waits_while_another_makes_it(
    root: Path, in_the_making: Install
) -> None:
    stream = WritesStamp(root)
    wait_until_made(root, ENVIRONMENT, Progress(stream))
    assert ".venv" in stream.getvalue()


def test_who_needs_an_environment_that_nobody_makes_is_told(root: Path) -> None:
    (root / "lock.txt").write_text("# nothing\n")
    with pytest.raises(InstallError, match=r"\.venv .*`make up`") as refused:
        wait_until_made(root, ENVIRONMENT, Progress(io.StringIO()))
    assert refused.value.problem == InstallProblem.NOT_MADE


# Getting uv --------------------------------------------------------------------------------------


@pytest.fixture
def pinned_uv(root: Path, tmp_path: Path, without_settings: pytest.MonkeyPatch) -> str:
    """A lock of the control plane that pins a uv of ours; returns where its wheel lies."""
    script = "#!/bin/sh\necho a uv of the tests\n"
    wheel = make_wheel(tmp_path / "wheels", "uv", "0.0.1", script=script)
    lock = root / CONTROL_PLANE.lock
    lock.parent.mkdir()
    lock.write_text(f"alpha==1.0 \\\n    --hash=sha256:aa\n{wheel.pinned}")
    without_settings.setenv("PIP_NO_INDEX", "1")
    without_settings.setenv("PIP_FIND_LINKS", str(wheel.file.parent))
    return str(wheel.file.parent)


def test_uv_is_fetched_by_pip_once_and_told_what_pip_was_told(root: Path, pinned_uv: str) -> None:
    tool = uv.obtain(root)
    said = subprocess.run([tool.program], capture_output=True, text=True, check=True)
    assert said.stdout == "a uv of the tests\n"
    assert tool.program.is_relative_to(root / "var")
    assert tool.environ["UV_FIND_LINKS"] == pinned_uv
    assert tool.index_options == ("--no-index",)
    fetched_at = tool.program.stat().st_mtime_ns
    assert uv.obtain(root).program.stat().st_mtime_ns == fetched_at


def test_uv_of_another_hash_is_refused(root: Path, pinned_uv: str) -> None:
    lock = root / CONTROL_PLANE.lock
    lock.write_text(lock.read_text()[:-5] + "0000\n")
    with pytest.raises(InstallError) as refused:
        uv.obtain(root)
    assert refused.value.problem == InstallProblem.HASH_MISMATCH
    assert not list((root / "var").glob("uv-*/bin/uv"))


def test_uvs_own_variables_win_over_what_pip_was_told(
    root: Path, pinned_uv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", "/elsewhere")
    monkeypatch.setenv("UV_CACHE_DIR", "/cache")
    tool = uv.obtain(root)
    assert tool.environ["UV_FIND_LINKS"] == "/elsewhere"
    assert tool.environ["UV_CACHE_DIR"] == "/cache"


def test_a_home_that_cannot_be_written_has_no_cache(
    root: Path, pinned_uv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert uv.obtain(root).environ["UV_CACHE_DIR"] == str(root / "var" / "uv-cache")


# pip's settings ----------------------------------------------------------------------------------


def test_pips_settings_are_read_in_pips_order(tmp_path: Path) -> None:
    listing = tmp_path / "pip-config-list"
    listing.write_text(
        ":env:.timeout='60'\n"
        "global.find-links='\\n/one\\n/two'\n"
        "global.index-url='https://a/simple'\n"
        "global.timeout='5'\n"
        "install.index-url='https://b/simple'\n"
        "list.format='columns'\n"
    )
    pip = ["sh", "-c", f"cat {listing}"]
    settings = pip_settings.read(pip)
    assert settings["index-url"] == "https://b/simple"
    assert settings["find-links"].split() == ["/one", "/two"]
    assert settings["timeout"] == "60"
    assert "format" not in settings


def test_uv_is_told_what_pip_was_told(tmp_path: Path) -> None:
    told = pip_settings.as_uv_variables(
        {
            "index-url": "https://user:password@mirror/simple",
            "extra-index-url": "https://a/simple\nhttps://b/simple",
            "find-links": f"https://links {tmp_path} /not/there",
            "trusted-host": "mirror a:8080",
            "cert": "/etc/ca.pem",
            "proxy": "http://proxy:3128",
            "default-timeout": "180",
        }
    )
    assert told == {
        "UV_DEFAULT_INDEX": "https://user:password@mirror/simple",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_FIND_LINKS": f"https://links,{tmp_path}",
        "UV_INSECURE_HOST": "mirror a:8080",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "HTTP_PROXY": "http://proxy:3128",
        "HTTPS_PROXY": "http://proxy:3128",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_uv_is_told_nothing_of_indexes_where_pip_was_not() -> None:
    assert pip_settings.as_uv_variables({}) == {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    assert pip_settings.as_uv_options({"no-index": "false"}) == ()
