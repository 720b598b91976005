"""Where an upload lies in clear while it is looked at: gone at the end, whatever the end is."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from inference.adapters.validation.scratch import scratch_folder
from tests.support.places import ROOT

KILLED = """
import sys
from inference.adapters.validation.scratch import scratch_folder

with scratch_folder() as folder:
    (folder / "upload").write_bytes(b"weights")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def a_process(temporary: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED)],
        env={"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert Path(process.stdout.readline().strip()).parent == temporary
    return process


def test_a_folder_is_gone_after_its_use_and_after_an_error(temporary: Path) -> None:
    with scratch_folder() as folder:
        (folder / "upload").write_bytes(b"weights")
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError, match="no adapter"), scratch_folder() as folder:
        raise ValueError("no adapter")
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_a_living_ones_is_not(temporary: Path) -> None:
    living, killed = a_process(temporary), a_process(temporary)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(list(temporary.iterdir())) == 2
    with scratch_folder() as mine:
        assert len(list(temporary.iterdir())) == 2
        assert (next(each for each in temporary.iterdir() if each != mine) / "upload").exists()
    assert len(list(temporary.iterdir())) == 1
    living.communicate("")
    assert list(temporary.iterdir()) == []


def test_what_others_put_under_such_a_name_is_left_alone(temporary: Path) -> None:
    outside = temporary / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (temporary / "penstock-adapter-link").symlink_to(outside)
    (temporary / "penstock-adapter-file").touch()
    os.mkfifo(temporary / "penstock-adapter-pipe")
    with scratch_folder():
        assert (outside / "kept").exists()
        assert (temporary / "penstock-adapter-file").exists()
