"""The CPUs available to this process."""

from __future__ import annotations

import os
from pathlib import Path


def available_cpus() -> int:
    """Number of CPUs available to this process: its affinity mask, limited by the cgroup quota, rounded up."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            count = min(count, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return count
