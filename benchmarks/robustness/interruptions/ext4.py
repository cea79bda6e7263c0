"""Power cuts of a real file system: what ext4 has written to an image when a program is ended is all that remains."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from robustness.interruptions.kills import Moment, end_at, judged
from robustness.interruptions.strace import calls_of, traced
from robustness.interruptions.writing import Writing, content_of

IMAGE_BYTES = 16 * 2**20
OPTIONS = "loop,commit=600,noauto_da_alloc"
"""Write late: neither every few seconds, as by default, nor because a file is renamed over another."""


def cuts(writing: Writing, folder: Path) -> Iterator[tuple[int, Moment]]:
    """Cut the power at each system call of a program; yields the number of calls and what each left.

    The disk is an image that is copied at that moment, while what the file system has not written is still in memory.

    Args:
        writing: the program.
        folder: an empty folder.

    Raises:
        RuntimeError: the program fails by itself, or does not make the same calls each time.
    """
    source, made = writing.prepare(folder)
    before, during, after = (folder / f"{name}.img" for name in ("before", "during", "after"))
    disk = folder / "disk"
    disk.mkdir()
    _make(before)
    with mounted(before, disk):
        shutil.copytree(made.parent, disk / "out")
    target = disk / "out" / made.name
    shutil.copy(before, during)
    with mounted(during, disk):
        old = content_of(target)
        trace = traced(writing.program, source, target, inject=writing.inject)
        new = content_of(target)
    if trace.status or new is None:
        raise RuntimeError(trace.stderr)
    calls = calls_of(trace, disk)
    for call in calls:
        shutil.copy(before, during)
        with mounted(during, disk):
            end_at(writing, source, target, call)
            shutil.copy(during, after)
        with mounted(after, disk):
            yield len(calls), judged(target, old, new, f"power cut at {call.name} {call.number}")


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[None]:
    """Mount an image, and unmount it at the end of the block."""
    subprocess.run(["mount", "-o", OPTIONS, image, folder], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True, capture_output=True)


@cache
def mount_problem() -> str | None:
    """Why images cannot be mounted here; ``None`` if they can."""
    if os.geteuid() != 0:
        return "only root may mount images"
    with tempfile.TemporaryDirectory(prefix="edgeformer-ext4-") as folder:
        image, disk = Path(folder) / "image", Path(folder) / "disk"
        disk.mkdir()
        try:
            _make(image)
            with mounted(image, disk):
                return None
        except (OSError, subprocess.CalledProcessError) as error:
            return f"images of ext4 cannot be mounted here: {error}"


def _make(image: Path) -> None:
    """Create an empty file system."""
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image], check=True, capture_output=True)
