"""Memory bandwidth of this machine, which limits decoder steps, since each of them reads every weight once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

SIZES = (1_000_000, 4_000_000, 16_000_000, 64_000_000, 256_000_000)

Reduction = Callable[[NDArray[np.uint8]], Any]
REDUCTIONS: dict[str, Reduction] = {
    "maximum of uint8": lambda buffer: buffer.max(),
    "maximum of float32": lambda buffer: buffer.view(np.float32).max(),
    "bitwise or of uint64": lambda buffer: np.bitwise_or.reduce(buffer.view(np.uint64)),
}
"""NumPy's cheapest ways to read a buffer; which one is fastest depends on the processor."""

_ROUND_BYTES = 256_000_000
"""Bytes read between two readings of the clock, so that the time to start threads is negligible."""


class Bandwidth(msgspec.Struct, kw_only=True, frozen=True):
    """Read bandwidth of one or more threads, each with its own buffer."""

    threads: int
    """Number of threads that read at the same time."""
    bytes: int
    """Total size of all buffers, in bytes."""
    gigabytes_per_second: float
    """Total bandwidth of all threads in GB/s (10^9 bytes per second); the best of several rounds and reductions."""
    reduction: str
    """The fastest reduction, a key of :data:`REDUCTIONS`."""


def read_bandwidth(threads: Sequence[int], sizes: Sequence[int] = SIZES, seconds: float = 0.2) -> list[Bandwidth]:
    """Measure bandwidth for each combination of thread count and buffer size.

    Args:
        threads: thread counts.
        sizes: total sizes of all buffers, in bytes.
        seconds: time to spend on each reduction and size.
    """
    return [_best(count, size, seconds) for count in threads for size in sizes]


def bandwidth_at(measured: Sequence[Bandwidth], threads: int, size: float) -> Bandwidth:
    """Return the measurement with this number of threads whose size is closest by ratio."""
    candidates = [entry for entry in measured if entry.threads == threads]
    return min(candidates, key=lambda entry: max(entry.bytes / size, size / entry.bytes))


def _best(threads: int, size: int, seconds: float) -> Bandwidth:
    share = size // threads // 8 * 8
    # Filled with ones, since the system maps a buffer of zeros to a single page.
    buffers = [np.full(share, 1, np.uint8) for _ in range(threads)]
    repeats = max(1, _ROUND_BYTES // size)
    best = (0.0, "")
    with ThreadPoolExecutor(threads) as pool:
        for name, reduce in REDUCTIONS.items():
            end = time.perf_counter() + seconds
            while (begin := time.perf_counter()) < end:
                list(pool.map(partial(_read, reduce, repeats), buffers))
                speed = repeats * share * threads / (time.perf_counter() - begin) / 1e9
                best = max(best, (speed, name))
    return Bandwidth(threads=threads, bytes=share * threads, gigabytes_per_second=best[0], reduction=best[1])


def _read(reduce: Reduction, repeats: int, buffer: NDArray[np.uint8]) -> None:
    for _ in range(repeats):
        reduce(buffer)
