"""A worker's outbox on its disk, without Redis."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpu_workers.outbox.disk import (
    OutboxHeld,
    OutboxOfOtherPool,
    OutboxUnusable,
    OutboxUnwritable,
    lock,
)
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.protocol import stream_fields
from tests.support.places import ROOT
from tests.support.polling import eventually
from tests.support.workers.outboxes import SmallDisk

HOLD = """
import asyncio, sys
from pathlib import Path
from gpu_workers.outbox.outbox import Outbox

async def hold():
    outbox = Outbox.open(Path(sys.argv[1]), pool="sim")
    await outbox.put("record", b"from the dead", gateway_id="g", resumed=0)
    print("held", flush=True)
    await asyncio.sleep(600)

asyncio.run(hold())
"""


@pytest.fixture
async def outbox(tmp_path: Path) -> AsyncIterator[Outbox]:
    outbox = Outbox.open(tmp_path / "outbox", pool="sim")
    yield outbox
    await outbox.close()


async def put(outbox: Outbox, record: bytes) -> int:
    return await outbox.put(stream_fields.USAGE_FIELD, record, gateway_id="gateway-1", resumed=0)


async def test_rows_outlive_the_process_and_so_does_the_outboxes_id(tmp_path: Path) -> None:
    first = Outbox.open(tmp_path, pool="sim")
    seqs = [await put(first, b"one"), await put(first, b"two")]
    first.mark_appended(seqs[0], "1-0")
    await first.close()
    second = Outbox.open(tmp_path, pool="sim")
    assert second.outbox_id == first.outbox_id
    assert [entry.record for entry in await second.in_doubt()] == [b"two"]
    assert await second.settled_after(0, 10) == [(seqs[0], "1-0")]
    third = await put(second, b"three")
    assert third > max(seqs), "a number is never given out twice"
    await second.close()


async def test_a_number_is_not_given_out_again_after_its_row_has_gone(outbox: Outbox) -> None:
    first = await put(outbox, b"one")
    outbox.forget([first])
    assert await put(outbox, b"two") > first
    assert await outbox.count() == 1


async def test_what_is_in_flight_is_not_in_doubt_until_it_is_marked(outbox: Outbox) -> None:
    seq = await put(outbox, b"one")
    assert await outbox.in_doubt() == []
    outbox.mark_in_doubt(seq)
    assert [entry.seq for entry in await outbox.in_doubt()] == [seq]


async def test_many_at_once_are_all_kept(outbox: Outbox) -> None:
    seqs = await asyncio.gather(*(put(outbox, str(number).encode()) for number in range(500)))
    assert len(set(seqs)) == await outbox.count() == 500


async def test_only_one_process_may_hold_an_outbox(tmp_path: Path) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(OutboxHeld):
            lock(tmp_path, 0)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    successor = Outbox.open(tmp_path, pool="sim")
    assert [entry.record for entry in await successor.in_doubt()] == [b"from the dead"]
    await successor.close()


async def test_without_a_folder_of_its_own_a_worker_takes_the_first_that_is_free(
    tmp_path: Path,
) -> None:
    first = Outbox.open_free(tmp_path, pool="sim/one")
    second = Outbox.open_free(tmp_path, pool="sim/one")
    assert first.folder != second.folder
    await put(first, b"left behind")
    await first.close()
    successor = Outbox.open_free(tmp_path, pool="sim/one")
    assert [entry.record for entry in await successor.in_doubt()] == [b"left behind"]
    await successor.close()
    await second.close()


async def test_another_pools_entries_are_not_taken_for_ours(tmp_path: Path) -> None:
    outbox = Outbox.open(tmp_path, pool="sim")
    seq = await put(outbox, b"one")
    await outbox.close()
    with pytest.raises(OutboxOfOtherPool):
        Outbox.open(tmp_path, pool="other")
    outbox = Outbox.open(tmp_path, pool="sim")
    outbox.forget([seq])
    await outbox.close()
    await Outbox.open(tmp_path, pool="other").close()


async def test_a_folder_that_cannot_be_made_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OutboxUnusable):
        Outbox.open(tmp_path / "file" / "outbox", pool="sim")


async def test_a_damaged_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "outbox.sqlite3").write_bytes(b"no database at all, but long enough" * 100)
    with pytest.raises(OutboxUnusable):
        Outbox.open(tmp_path, pool="sim")


async def test_what_nobody_waits_for_is_done_once_a_full_disk_has_room(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, pool="sim")
    outbox = disk.outbox
    seq = await put(outbox, b"one")
    await disk.bound(pages=1)
    with pytest.raises(OutboxUnwritable):
        await put(outbox, b"x" * 1_000_000)
    assert outbox.problem
    outbox.mark_appended(seq, "1-0")
    await disk.make_room()
    await outbox.probe_disk()
    assert not outbox.problem

    async def is_settled() -> bool:
        return await outbox.settled_after(0, 10) == [(seq, "1-0")]

    await eventually(is_settled)
    await outbox.close()
