"""What a worker's /metrics tells of its garbage collections."""

import gc
import subprocess
import sys
from pathlib import Path

from gpu_workers.heap import CollectionTimes
from tests.support.places import ROOT


def test_each_collection_is_counted_under_its_generation() -> None:
    times = CollectionTimes()
    gc.callbacks.append(times.note)
    try:
        gc.collect(0)
        gc.collect(2)
        gc.collect(2)
    finally:
        gc.callbacks.remove(times.note)
    (family,) = times.collect()
    counts = {
        (sample.labels["generation"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_count")
    }
    assert counts["0"] >= 1
    assert counts["2"] >= 2
    assert all(
        sample.value > 0
        for sample in family.samples
        if sample.name.endswith("_sum") and counts[sample.labels["generation"]]
    )


def test_a_frozen_heap_holds_what_there_was(tmp_path: Path) -> None:
    program = (
        "import gc\n"
        "from gpu_workers.heap import freeze_heap\n"
        "kept = [[] for _ in range(10_000)]\n"
        "freeze_heap()\n"
        "assert gc.get_freeze_count() > 10_000\n"
        "assert not any(each is kept for each in gc.get_objects())\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
