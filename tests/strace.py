"""Runs a Python program under strace, which lists its system calls and can end it at any of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

CALLS = ("mkdir", "flock", "fsync", "renameat2", "rename", "unlinkat", "unlink", "rmdir")
"""System calls that change names, or wait for the disk."""


class Trace(NamedTuple):
    """What a program did."""

    status: int
    """Its exit status, negative or above 128 for a signal."""
    lines: list[str]
    """Its system calls, with the names of open files."""
    stderr: str


def traced(program: str, *arguments: Path, inject: Sequence[str] = ()) -> Trace:
    """Run Python code under strace.

    Args:
        program: the code.
        arguments: its arguments.
        inject: what strace makes of some calls, such as ``rename:signal=SIGKILL:when=2``.
    """
    faults = [word for fault in inject for word in ("-e", f"inject={fault}")]
    with tempfile.TemporaryDirectory(prefix="edgeformer-strace-") as folder:
        output = Path(folder) / "trace"
        strace = ["strace", "-f", "-y", "-qq", "-s", "1", "-o", str(output), "-e", f"trace={','.join(CALLS)}"]
        done = subprocess.run(
            [*strace, *faults, sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        lines = output.read_text(encoding="utf-8").splitlines() if output.is_file() else []
    return Trace(done.returncode, lines, done.stderr)


@cache
def strace_problem() -> str | None:
    """Why strace cannot be used here; ``None`` if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    trace = traced("")
    return None if trace.status == 0 else f"strace may not be used here: {trace.stderr.strip()}"
