"""Adapters on a worker's disk: checked at each load, within a bound, whoever else writes there."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from safetensors.numpy import load_file

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from gpu_workers.adapters.cache import AdapterCache, CacheUnusable
from gpu_workers.adapters.unseal import AdapterCorrupt
from gpu_workers.protocol.adapters import AdapterSource
from tests.support.places import ROOT
from tests.support.workers.adapters.full_disk import files_of_at_most
from tests.support.workers.adapters.store import FAR_AHEAD_MS, MadeAdapter, make_adapter

ENOUGH = 2**30


@pytest.fixture
def cache(cache_folder: Path) -> Iterator[AdapterCache]:
    cache = AdapterCache.open(cache_folder, ENOUGH)
    yield cache
    cache.close()


def source_of(adapter: MadeAdapter) -> AdapterSource:
    return AdapterSource(
        adapter=adapter.name,
        url="http://127.0.0.1:1/",
        size_bytes=len(adapter.sealed),
        sha256=adapter.sha256,
        key=adapter.key,
        expires_at_ms=FAR_AHEAD_MS,
    )


def put(cache: AdapterCache, adapter: MadeAdapter) -> Path:
    """What a fetch does."""
    source = source_of(adapter)
    path, file = cache.begin(source)
    with file:
        file.write(adapter.sealed)
    return cache.open_fetched(path, source)


def sealed_path(folder: Path, adapter: MadeAdapter) -> Path:
    return folder / "sealed" / adapter.name


def files_in(folder: Path) -> set[str]:
    """Everything but locks, by its path in the cache."""
    found = (path for path in folder.rglob("*") if not path.is_dir() and path.name != "lock")
    return {str(path.relative_to(folder)) for path in found}


def test_an_adapter_is_opened_as_the_folder_that_peft_and_vllm_read(cache: AdapterCache) -> None:
    adapter = make_adapter(3)
    fetched, cached = put(cache, adapter), cache.open_cached(source_of(adapter))
    assert cached is not None
    for folder in (fetched, cached):
        assert (folder / WEIGHTS_FILE).read_bytes() == adapter.plain
        assert json.loads((folder / CONFIG_FILE).read_text())["r"] == 8
        assert len(load_file(folder / WEIGHTS_FILE)) == 2


def test_an_adapter_is_opened_where_it_was_before_unless_it_is_open_already(
    cache: AdapterCache,
) -> None:
    """vLLM tells what it has computed for one adapter from another's by this path, too."""
    adapter = make_adapter(3)
    first = put(cache, adapter)
    second = cache.open_cached(source_of(adapter))
    assert second is not None
    assert second != first
    for folder in (first, second):
        cache.drop(folder)
    assert cache.open_cached(source_of(adapter)) == first
    assert put(cache, make_adapter(4)) != first


def test_what_lies_in_the_shared_folder_is_sealed(cache: AdapterCache, cache_folder: Path) -> None:
    adapter = make_adapter()
    put(cache, adapter)
    assert cache.names() == {adapter.name}
    assert sealed_path(cache_folder, adapter).read_bytes() == adapter.sealed
    assert cache_folder.stat().st_mode & 0o077 == 0


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def tamper(path: Path) -> None:
        path.unlink()
        make(path)

    return tamper


def another_adapter(path: Path) -> None:
    path.write_bytes(make_adapter(7).sealed)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    os.truncate(path, 2**40)


TAMPERED: dict[str, Callable[[Path], None]] = {
    "a flipped byte": flip_a_byte,
    "cut": cut,
    "grown": grow,
    "another adapter": another_adapter,
    "a link": replace_by(lambda path: path.symlink_to("/etc/hosts")),
    "a loop": replace_by(lambda path: path.symlink_to(path)),
    "a folder": replace_by(lambda path: path.mkdir()),
    "a pipe": replace_by(os.mkfifo),
    "empty": replace_by(lambda path: path.touch()),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_what_somebody_left_in_an_adapters_place_is_found_out_and_removed(
    cache: AdapterCache, cache_folder: Path, tamper: Callable[[Path], None]
) -> None:
    adapter = make_adapter()
    put(cache, adapter)
    tamper(sealed_path(cache_folder, adapter))
    with pytest.raises(AdapterCorrupt):
        cache.open_cached(source_of(adapter))
    assert cache.open_cached(source_of(adapter)) is None
    assert not os.path.lexists(sealed_path(cache_folder, adapter))
    assert cache.open_cached(source_of(adapter)) is None
    put(cache, adapter)
    assert cache.open_cached(source_of(adapter)) is not None


def test_nobody_reaches_between_the_check_and_the_load_through_the_shared_folder(
    cache: AdapterCache, cache_folder: Path
) -> None:
    """Bob of Globex has a worker there too. What Acme's engine will read was checked, and is his to
    change no more."""
    adapter = make_adapter()
    put(cache, adapter)
    opened = cache.open_cached(source_of(adapter))
    assert opened is not None
    path = sealed_path(cache_folder, adapter)
    flip_a_byte(path)
    path.unlink()
    another_adapter(path)
    assert (opened / WEIGHTS_FILE).read_bytes() == adapter.plain


def test_another_key_or_digest_than_the_sources_opens_nothing(
    cache: AdapterCache, cache_folder: Path
) -> None:
    adapter = make_adapter()
    for lie in ({"key": os.urandom(32)}, {"key": b"short"}, {"sha256": bytes(32)}):
        put(cache, adapter)
        with pytest.raises(AdapterCorrupt):
            cache.open_cached(structs.replace(source_of(adapter), **lie))
        assert cache.names() == set()


@pytest.mark.parametrize("config", [[], "text", 7, "[]"])
def test_a_file_without_a_configuration_is_no_adapter(cache: AdapterCache, config: object) -> None:
    with pytest.raises(AdapterCorrupt):
        put(cache, make_adapter(config=config))


def test_a_fetch_of_something_else_leaves_nothing_behind(
    cache: AdapterCache, cache_folder: Path
) -> None:
    adapter = make_adapter()
    path, file = cache.begin(source_of(adapter))
    with file:
        file.write(make_adapter(7).sealed)
    with pytest.raises(AdapterCorrupt):
        cache.open_fetched(path, source_of(adapter))
    assert files_in(cache_folder) == set()


def age(folder: Path, adapter: MadeAdapter, at: int) -> None:
    os.utime(sealed_path(folder, adapter), (at, at))


def test_the_least_recently_used_make_room_within_the_bound(cache_folder: Path) -> None:
    adapters = [make_adapter(number) for number in range(3)]
    size = len(adapters[0].sealed)
    cache = AdapterCache.open(cache_folder, 4 * size)
    for at, adapter in enumerate(adapters):
        cache.drop(put(cache, adapter))
        age(cache_folder, adapter, at)
    opened = cache.open_cached(source_of(adapters[0]))  # which makes it the latest
    assert opened is not None
    assert cache.size_bytes() == 4 * size
    assert cache.make_room(0) == []
    assert cache.make_room(size) == [adapters[1].name]
    assert cache.make_room(2 * size) == [adapters[2].name]
    assert cache.names() == {adapters[0].name}
    cache.close()


def test_what_all_workers_have_opened_counts_and_is_never_removed(cache_folder: Path) -> None:
    adapters = [make_adapter(number) for number in range(3)]
    size = len(adapters[0].sealed)
    ours, theirs = (AdapterCache.open(cache_folder, 3 * size) for _ in range(2))
    opened = [put(theirs, adapter) for adapter in adapters]
    assert ours.size_bytes() <= 4 * size, "the last was used, and not kept"
    ours.make_room(size)
    assert ours.names() == set()
    assert all((folder / WEIGHTS_FILE).exists() for folder in opened)
    theirs.close()
    ours.close()
    assert files_in(cache_folder) == set()


KILLED_MID_WRITE = """
import os, sys
from pathlib import Path
from gpu_workers.adapters.cache import AdapterCache
from gpu_workers.protocol.adapters import AdapterSource
cache = AdapterCache.open(Path(sys.argv[1]), 2**30)
source = AdapterSource(
    adapter="a" * 64, url="", size_bytes=9, sha256=b"", key=b"", expires_at_ms=0
)
path, file = cache.begin(source)
file.write(b"half of it")
file.flush()
print("written", flush=True)
sys.stdin.read()
"""


def test_a_worker_that_is_killed_in_the_middle_of_a_write_leaves_nothing_to_its_successor(
    cache: AdapterCache, cache_folder: Path
) -> None:
    adapter = make_adapter()
    opened = put(cache, adapter)
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED_MID_WRITE, str(cache_folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"written\n"
        killed.kill()
    assert any(name.endswith("-fetched") for name in files_in(cache_folder))
    AdapterCache.open(cache_folder, ENOUGH).close()
    left = files_in(cache_folder)
    assert not any(name.endswith("-fetched") for name in left)
    assert cache.names() == {adapter.name}
    assert (opened / WEIGHTS_FILE).exists(), "of a worker that lives"


def test_a_disk_that_refuses_leaves_what_was_there_and_nothing_half_written(
    cache: AdapterCache, cache_folder: Path
) -> None:
    adapter = make_adapter()
    cache.drop(put(cache, adapter))
    with files_of_at_most(4096), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        cache.open_cached(source_of(adapter))
    assert files_in(cache_folder) == {f"sealed/{adapter.name}"}
    assert cache.size_bytes() == len(adapter.sealed)
    assert cache.open_cached(source_of(adapter)) is not None


def test_a_folder_that_somebody_removes_is_made_again(
    cache: AdapterCache, cache_folder: Path
) -> None:
    adapter = make_adapter()
    put(cache, adapter)
    shutil.rmtree(cache_folder)
    assert cache.open_cached(source_of(adapter)) is None
    opened = put(cache, adapter)
    AdapterCache.open(cache_folder, ENOUGH).close()
    assert (opened / WEIGHTS_FILE).exists(), "it has its lock again"
    assert cache.size_bytes() == 2 * len(adapter.sealed)


def test_a_folder_that_is_none_is_told_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheUnusable, match="PENSTOCK_ADAPTER_CACHE"):
        AdapterCache.open(tmp_path / "file" / "cache", ENOUGH)
