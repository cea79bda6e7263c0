"""How much memory and disk space an export needs, and how much there is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgeformer.train.run import Run
from edgeformer_export.writer import ExportError
from edgeformer_runtime.precision import PRECISIONS, Precision

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
PROCESS = 700_000_000
"""Memory of an export of a model without weights, in bytes: libraries, and what tracing needs."""
COPIES = 4.5
"""Memory at the peak, beyond :data:`PROCESS`, divided by the size of the weights in fp32. Measured; see
``docs/import.md``."""
AUTO_BITS = sum(traits.bits for traits in PRECISIONS.values() if traits.optimized_for == "cpu")
"""Bits per weight of all candidates for the automatic choice of a precision, which are open at the same time."""


@dataclass(frozen=True)
class Resources:
    """Bytes that an export needs, estimated from the size of the run's weights, and those that there are."""

    memory: int
    """Resident memory at the peak."""
    available: int | None
    """Memory that this process may take; ``None`` if the system does not say."""
    disk: int
    """Size of the bundle."""
    free: int
    """Free space where the bundle will be."""

    def __str__(self) -> str:
        memory, disk, free = map(_gigabytes, (self.memory, self.disk, self.free))
        available = "" if self.available is None else f" ({_gigabytes(self.available)} available)"
        return f"The export needs about {memory} of memory{available} and {disk} of disk space ({free} free)"


def estimate(run: Run, out: Path, precision: Precision | Literal["auto"]) -> Resources:
    """Estimate what an export needs.

    Args:
        run: the run; its weights are not loaded.
        out: the bundle's folder.
        precision: precision of the bundle; ``auto`` if it is chosen by measuring.
    """
    weights = run.model_path.stat().st_size if run.model_path.is_file() else 0
    # Tables that are read in two precisions, and products that merge others, are stored twice.
    disk = int(1.5 * weights * (AUTO_BITS if precision == "auto" else PRECISIONS[precision].bits) / 32)
    memory = int(PROCESS + COPIES * weights) + (disk if precision == "auto" else 0)
    folder = next(folder for folder in out.absolute().parents if folder.is_dir())
    return Resources(memory, available_memory(), disk, shutil.disk_usage(folder).free)


def require(resources: Resources, *, ignore_memory: bool = False) -> None:
    """Make sure that an export does not fail after long work for lack of memory or disk space.

    Args:
        resources: what it needs, and what there is.
        ignore_memory: continue without enough memory.

    Raises:
        ExportError: there is too little.
    """
    if resources.available is not None and resources.memory > resources.available and not ignore_memory:
        raise ExportError(
            f"{resources}. Close other programs, raise the memory limit of the container, or try it anyway with "
            "--ignore-memory."
        )
    if resources.disk > resources.free:
        raise ExportError(f"{resources}. Choose another disk with --out.")


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
        lines = (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
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


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
