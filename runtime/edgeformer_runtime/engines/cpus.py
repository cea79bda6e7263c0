"""The CPUs available to this process, and what the system says of them."""

from __future__ import annotations

import os
from pathlib import Path

from edgeformer_runtime.limits import MAX_THREADS

CPU_INFO = Path("/proc/cpuinfo")
BYTES_PER_THREAD = 10_000_000
"""Size of the bundle for which another thread is worth waking: in a step of a smaller model, products take a few
microseconds each, about as long as it takes to wake a thread. Measured; see ``docs/speed.md``."""
MAX_DEFAULT_WORKERS = 8
"""More workers than this wait for each other in Python, and each needs memory for its batch."""


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


def useful_threads(nbytes: int, cpus: int) -> int:
    """Number of threads per operator that make a model faster: one, and one more for each :data:`BYTES_PER_THREAD`.

    Args:
        nbytes: size of the bundle in bytes.
        cpus: number of CPUs that it may use.
    """
    return max(1, min(cpus, 1 + nbytes // BYTES_PER_THREAD))


def divide_cpus(nbytes: int, threads: int, workers: int, most_threads: int = MAX_THREADS) -> tuple[int, int]:
    """Divide the available CPUs among workers, batches that are decoded concurrently, and threads of each.

    Args:
        nbytes: size of the bundle in bytes.
        threads: threads per operator; 0 for :func:`useful_threads`.
        workers: number of workers; 0 for as many as there are CPUs for, at most :data:`MAX_DEFAULT_WORKERS`, or for one
            if the number of threads is given.
        most_threads: threads that the engine can use for an operator; if more are given, as many workers share them.

    Returns:
        Threads and workers.
    """
    cpus = available_cpus()
    if threads:
        return min(threads, most_threads), workers or max(1, threads // most_threads)
    threads = min(useful_threads(nbytes, cpus // max(1, workers)), most_threads)
    return threads, workers or max(1, min(cpus // threads, MAX_DEFAULT_WORKERS))


def divide_for_many(device: str, threads: int, workers: int) -> tuple[int, int]:
    """Replace defaults by settings for many sentences: workers of one thread each, which decode more than one worker
    with several threads.

    Args:
        device: ``cpu`` or ``cuda``.
        threads: threads per operator; 0 for the default.
        workers: number of workers; 0 for the default.

    Returns:
        Threads and workers, as :meth:`~edgeformer_runtime.translator.Translator.open` takes them.
    """
    if device == "cpu" and not threads and not workers:
        threads, workers = 1, min(available_cpus(), MAX_DEFAULT_WORKERS)
    return threads, workers
