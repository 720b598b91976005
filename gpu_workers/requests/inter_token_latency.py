"""The inter-token latencies (ITL) of one request, as a histogram of fixed size."""

from array import array
from typing import Final

# Sixteen buckets to each power of two of microseconds: within 1/32 of what was measured.
_BITS: Final = 4
_LARGEST_US: Final = 2**31 - 1
_BUCKETS: Final = (31 - _BITS - 1 << _BITS) + (2 << _BITS)
_EMPTY: Final = bytes(4 * _BUCKETS)


class InterTokenLatency:
    """Latencies between tokens, of which quantiles are asked. `add` runs for every token."""

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self._counts = array("I", _EMPTY)
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        bucket = max(nanoseconds, 0) // 1000
        shift = bucket.bit_length() - _BITS - 1
        if shift > 0:
            bucket = (shift << _BITS) + (bucket >> shift) if bucket <= _LARGEST_US else _BUCKETS - 1
        self._counts[bucket] += 1
        self.count += 1

    def quantile_ms(self, share: float) -> float | None:
        """Return the latency in milliseconds that this share of them does not exceed; None without
        any."""
        rank, seen = share * self.count, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return round(_middle_us(bucket) / 1000, 3)
        return None


def _middle_us(bucket: int) -> float:
    shift = (bucket >> _BITS) - 1
    if shift <= 0:
        return float(bucket)
    return ((bucket - (shift << _BITS)) << shift) + ((1 << shift) - 1) / 2
