"""Memory of this process: its peak, and what it may still take."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def peak_memory_mb() -> float | None:
    """Return the peak resident memory of this process so far, in 10^6 bytes; ``None`` on Windows."""
    try:  # Linux's own figure; getrusage may report that of the parent process
        status = (PROC / "self" / "status").read_bytes().decode(errors="replace")  # names may be any bytes
        return int(status.partition("\nVmHWM:")[2].split()[0]) * 1024 / 1e6
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ModuleNotFoundError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def available_memory() -> int | None:
    """Memory that this process may take, in bytes: what the system has left, swap included, and what the limits of its
    control groups leave; ``None`` if the system does not say."""
    return min([*_free_memory(), *_left_in_groups()], default=None)


def _free_memory() -> Iterator[int]:
    try:
        lines = (PROC / "meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: 1024 * int(size.split()[0]) for name, _, size in (line.partition(":") for line in lines)}
        yield sizes["MemAvailable"] + sizes.get("SwapFree", 0)
    except (OSError, ValueError, KeyError):
        if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):  # all memory of the machine, which is more
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _left_in_groups() -> Iterator[int]:
    """Yield what is left in each control group that this process is in, of version 1 or 2. Pages of files that were
    not used of late are reclaimed when memory is short, so they count as left."""
    try:
        lines = (PROC / "self" / "cgroup").read_bytes().decode(errors="surrogateescape").split("\n")
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines if line):
        if not controllers:
            root, names = CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = CGROUPS / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents[: len(folder.parents) - len(root.parents)]):
            try:
                limit, used = (int((group / name).read_text(encoding="ascii")) for name in names[:2])
                statistics = (group / "memory.stat").read_text(encoding="ascii").split()
                yield max(0, limit - used + int(statistics[statistics.index(names[2]) + 1]))
            except (OSError, ValueError):  # a group of another container, or one without a limit
                continue
