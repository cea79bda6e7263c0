"""The CPUs available to this process."""

from __future__ import annotations

import os
from pathlib import Path

from edgeformer_runtime.errors import OptionError

MAX_THREADS = 1024
"""Maximum number of threads or workers; far more exhaust what a process may have."""


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


def verify_threads(name: str, value: object, *, least: int) -> None:
    """Check a number of threads or workers.

    Raises:
        OptionError: ``value`` is not a whole number from ``least`` to :data:`MAX_THREADS`.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionError(f"`{name}` must be a whole number, but is {value!r}.")
    if value < least:
        raise OptionError(f"`{name}` must be at least {least}, but is {value}.")
    if value > MAX_THREADS:
        raise OptionError(f"`{name}` must be at most {MAX_THREADS}, but is {value}.")
