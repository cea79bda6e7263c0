"""Memory and disk space that an export needs, and those available."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgeformer.run.folder import Run
from edgeformer_export.writer import ExportError
from edgeformer_runtime.check.memory import available_memory
from edgeformer_runtime.precision import PRECISIONS, Precision

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


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
