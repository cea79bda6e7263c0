"""The CPUs available to this process, and what the system says of them."""

from __future__ import annotations

import os
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")


def cpu_facts() -> dict[str, str] | None:
    """Facts about the first processor from :data:`CPU_INFO`, by their names, such as ``model name``.

    Instruction sets are ``flags`` on x86 and ``Features`` on Arm. ``None`` if the system has no such file.
    """
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}


def cpu_flags(facts: dict[str, str]) -> frozenset[str]:
    """Instruction sets among :func:`cpu_facts`."""
    return frozenset((facts.get("flags") or facts.get("Features") or "").split())


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
