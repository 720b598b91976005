"""The process's heap: left alone until it is warm, then frozen; and how long its garbage
collections take."""

import gc
import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from prometheus_client import REGISTRY
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_GENERATIONS: Final = 3


def delay_collections() -> None:
    """Collect nothing until `freeze_heap`: what vLLM imports is no garbage, and to find that out
    again and again takes a quarter of the time that the imports take."""
    gc.disable()


def freeze_heap() -> None:
    """Collect what is garbage by now, and have no later collection walk what is not."""
    gc.collect()
    gc.freeze()
    gc.enable()


class CollectionTimes(Collector):
    """A histogram of the collections of this process. Not one of prometheus_client's: a collection
    may begin while the very thread that runs it holds a metric's lock."""

    def __init__(self) -> None:
        self._began = 0.0
        self._counts = [[0] * (len(_BUCKETS) + 1) for _ in range(_GENERATIONS)]
        self._sums = [0.0] * _GENERATIONS

    def note(self, phase: str, info: dict[str, Any]) -> None:
        """Take part in `gc.callbacks`."""
        if phase == "start":
            self._began = time.perf_counter()
            return
        seconds, generation = time.perf_counter() - self._began, info["generation"]
        self._counts[generation][bisect_left(_BUCKETS, seconds)] += 1
        self._sums[generation] += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "penstock_worker_gc_seconds",
            "Garbage collections of the worker's process, by generation.",
            labels=["generation"],
        )
        bounds = [*map(str, _BUCKETS), "+Inf"]
        for generation, counts in enumerate(self._counts):
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric([str(generation)], buckets, self._sums[generation])
        yield family


def measure_collections() -> None:
    """Have /metrics tell of every collection from now on; once in a process."""
    times = CollectionTimes()
    gc.callbacks.append(times.note)
    REGISTRY.register(times)
