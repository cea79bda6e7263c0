"""Growth of a process: one statistic for all programs that watch memory, open files and threads."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

WARM_UP = 0.2
"""Share of the samples in which a process may still grow: caches are filled, and the allocator gets its arenas."""


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one or more processes at one moment."""

    memory_mib: float
    files: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> ProcessState:
        """Look at a process of this machine.

        Raises:
            OSError: there is no such process, or this is not Linux.
        """
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        lines = dict(line.split(":", 1) for line in status.splitlines())
        if "VmRSS" not in lines:
            raise ProcessLookupError(f"process {pid} has ended")
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208, fewer objects
        return cls(memory_mib=int(lines["VmRSS"].split()[0]) / 1024, files=files, threads=int(lines["Threads"]))


@dataclass(frozen=True)
class GrowthLimit:
    """Largest growth of a figure from the first to the last quarter after the warm-up."""

    what: str
    """The figure, for people."""
    share: float = 0.0
    """As a share of the first quarter's."""
    amount: float = 0.0
    """Besides that, in its own unit."""


def quarters(samples: Sequence[object], name: str) -> tuple[float, float]:
    """Return the medians of a figure in the first and in the last quarter of the samples after the warm-up.

    Args:
        samples: at least one sample, oldest first.
        name: an attribute of the samples.
    """
    warm = [getattr(sample, name) for sample in samples[int(len(samples) * WARM_UP) :]]
    size = max(1, len(warm) // 4)
    return statistics.median(warm[:size]), statistics.median(warm[-size:])


def growth(samples: Sequence[object], limits: Mapping[str, GrowthLimit]) -> list[str]:
    """List the figures that grew further than they may, by attribute of the samples; see :func:`quarters`."""
    problems = []
    for name, limit in limits.items():
        first, last = quarters(samples, name)
        if last - first > limit.share * first + limit.amount:
            problems.append(f"{limit.what} grew from {first:.1f} to {last:.1f}")
    return problems
