"""A store that is away, full, or breaks in the middle: typed, and nothing is left behind."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from inference.blobs.errors import NoSpace, NoSuchBlob, StoreAway
from inference.blobs.opening import open_store
from inference.blobs.store import SINGLE_BYTES, BlobStore
from inference.blobs.sweep import GRACE, sweep_blobs
from tests.support.blobs.s3_server import CREDENTIALS, S3Server
from tests.support.places import ROOT, free_port


@pytest.fixture
def away() -> BlobStore:
    url = f"s3://bucket?endpoint=http://127.0.0.1:{free_port()}&region=us-east-1"
    return open_store(url, base=Path("/"), public_url="", secrets=("s",), **CREDENTIALS)


def test_a_store_that_is_away_is_told_so_by_each_call(away: BlobStore) -> None:
    for call in (
        lambda: away.put("a/b", [b"x"]),
        lambda: away.get("a/b"),
        lambda: away.look("a/b"),
        lambda: away.delete("a/b"),
        lambda: list(away.list()),
    ):
        with pytest.raises(StoreAway) as told:
            call()
        wire = told.value.to_wire()
        assert (wire.status, wire.code) == (503, "blob_store_away")
        assert "127.0.0.1" not in wire.message


def test_a_bucket_that_is_not_there_is_a_store_that_is_away(s3: S3Server) -> None:
    url = f"s3://another-bucket?endpoint={s3.endpoint}&region=us-east-1"
    store = open_store(url, base=Path("/"), public_url="", secrets=("s",), **CREDENTIALS)
    for call in (lambda: store.put("a/b", [b"x"]), lambda: list(store.list())):
        with pytest.raises(StoreAway):
            call()


def test_credentials_that_are_missing_are_an_operators_affair(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = open_store(
        s3.url,
        base=Path("/"),
        public_url="",
        secrets=("s",),
        metadata_endpoint=f"http://127.0.0.1:{free_port()}",
    )
    with pytest.raises(StoreAway):
        store.put("a/b", [b"x"])


def test_a_folder_that_cannot_be_read_is_a_store_that_is_away(
    folder_store: BlobStore, folder: Path
) -> None:
    folder_store.put("a/b", [b"x"])
    (folder / "a" / "b").unlink()
    (folder / "a").rmdir()
    (folder / "a").write_bytes(b"a file where a folder was")
    with pytest.raises(StoreAway):
        folder_store.put("a/b", [b"x"])


def ran(program: str, folder: Path) -> str:
    """What a program of our code, in a process of its own, prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(folder)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FULL = """
import resource, signal, sys
from pathlib import Path
from inference.blobs.errors import NoSpace
from inference.blobs.opening import open_store

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
store = open_store(f"file:{sys.argv[1]}", base=Path("/"), public_url="", secrets=("s",))
store.put("a/fits", [bytes(1_000_000)])
for size in (5_000_000, 40_000_000):
    try:
        store.put("a/large", (bytes(1_000_000) for _ in range(size // 1_000_000)))
    except NoSpace as error:
        print(error.to_wire().code)
"""


def test_a_full_disk_is_told_so_and_the_folder_is_as_before(tmp_path: Path) -> None:
    """A process that may write no larger files: as a disk that ends in the middle of one."""
    told = [line for line in ran(FULL, tmp_path).splitlines() if line == "blob_store_full"]
    assert len(told) == 2
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["fits"]


def test_a_source_that_breaks_leaves_no_unfinished_upload_in_the_bucket(
    s3_store: BlobStore, s3: S3Server
) -> None:
    def source() -> Iterator[bytes]:
        for _ in range(4):
            yield bytes(SINGLE_BYTES)
        assert s3.unfinished_uploads() == 1
        raise NoSpace("broken")

    with pytest.raises(NoSpace):
        s3_store.put("a/broken", source())
    assert s3.unfinished_uploads() == 0
    with pytest.raises(NoSuchBlob):
        s3_store.look("a/broken")


KILLED = """
import sys, time
from pathlib import Path
from inference.blobs.opening import open_store

def source():
    for _ in range(4):
        yield bytes(8 * 1024 * 1024)
    print("in the middle", flush=True)
    sys.stdin.read()

store = open_store(f"file:{sys.argv[1]}", base=Path("/"), public_url="", secrets=("s",))
store.put("uploads/one", source())
"""


def test_a_process_that_is_killed_in_the_middle_leaves_what_the_sweep_deletes(
    folder_store: BlobStore, folder: Path, settings: Settings
) -> None:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{folder}"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(folder)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"in the middle\n"
        writer.kill()
    assert [file for file in folder.rglob("*") if file.is_file()]
    assert list(folder_store.list()) == []
    sweep_blobs(now=timezone.now() + 2 * GRACE)
    assert not [file for file in folder.rglob("*") if file.is_file()]


def test_a_folder_has_written_through_what_it_says_it_has(tmp_path: Path) -> None:
    """The machine may lose its power next: PostgreSQL's row stays, so the bytes have to."""
    trace = tmp_path / "trace"
    program = """
        import os, sys
        from pathlib import Path
        from inference.blobs.opening import open_store

        synced = []
        fsync = os.fsync
        def watched(descriptor):
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)
        os.fsync = watched
        store = open_store(f"file:{sys.argv[1]}", base=Path("/"), public_url="", secrets=("s",))
        store.put("a/new/small", [b"x"])
        store.put("a/large", (bytes(1_000_000) for _ in range(9)))
        print(" ".join(os.path.relpath(each, sys.argv[1]) for each in synced))
    """
    assert ran(program, trace).split() == ["a/new/small", "a/new", "a", ".", "a/large", "a", "."]
