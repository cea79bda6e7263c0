"""Memory and disk space that an export needs, and those available."""

from __future__ import annotations

import shutil
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


def estimate(size: int, precision: Precision | Literal["auto"]) -> tuple[int, int]:
    """Estimate the memory at the peak and the disk space of an export, in bytes, from the size of the weights."""
    # Tables that are read in two precisions, and products that merge others, are stored twice.
    disk = int(1.5 * size * (AUTO_BITS if precision == "auto" else PRECISIONS[precision].bits) / 32)
    return int(PROCESS + COPIES * size) + (disk if precision == "auto" else 0), disk


def require_resources(run: Run, out: Path, precision: Precision | Literal["auto"], *, ignore_memory: bool) -> str:
    """Make sure that an export does not fail after long work for lack of memory or disk space.

    Args:
        run: the run; its weights are not loaded.
        out: the bundle's folder.
        precision: precision of the bundle; ``auto`` if it is chosen by measuring.
        ignore_memory: continue without enough memory.

    Returns:
        What the export needs, as a sentence.

    Raises:
        ExportError: there is too little.
    """
    memory, disk = estimate(run.model_path.stat().st_size if run.model_path.is_file() else 0, precision)
    available = available_memory()
    free = shutil.disk_usage(next(folder for folder in out.absolute().parents if folder.is_dir())).free
    there = "" if available is None else f" ({_gigabytes(available)} available)"
    needed = (
        f"The export needs about {_gigabytes(memory)} of memory{there} and {_gigabytes(disk)} of disk space "
        f"({_gigabytes(free)} free)."
    )
    if available is not None and memory > available and not ignore_memory:
        raise ExportError(
            f"{needed} Close other programs, raise the memory limit of the container, or try it anyway with "
            "--ignore-memory."
        )
    if disk > free:
        raise ExportError(f"{needed} Choose another disk with --out.")
    return needed


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
