"""Runs a Python program under strace, which lists its system calls and can end it at any of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

CHANGES = (
    *("openat", "creat", "write", "writev", "pwrite64", "sendfile", "copy_file_range"),
    *("truncate", "ftruncate", "fallocate", "mkdir", "mkdirat", "link", "linkat", "symlink"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *("chmod", "fchmod", "fchmodat", "utimensat", "flock", "fsync", "fdatasync"),
)
"""System calls that change files or names, or wait for the disk. A program that is ended at any other call leaves what
it would have left at the next of these."""
_LINE = re.compile(r"\d+ +(\w+)\((.*)")


class Trace(NamedTuple):
    """What a program did."""

    status: int
    """Its exit status, negative or above 128 for a signal."""
    lines: list[str]
    """Its system calls, with the names of open files."""
    stderr: str


class Call(NamedTuple):
    """A system call that strace can be told to act on."""

    name: str
    number: int
    """Which of the calls of that name it is, from 1."""
    line: str


def traced(program: str, *arguments: Path, inject: Sequence[str] = (), calls: Sequence[str] = CHANGES) -> Trace:
    """Run Python code under strace.

    Args:
        program: the code.
        arguments: its arguments.
        inject: what strace makes of some calls, such as ``rename:signal=SIGKILL:when=2``.
        calls: system calls to list.
    """
    faults = [word for fault in inject for word in ("-e", f"inject={fault}")]
    with tempfile.TemporaryDirectory(prefix="edgeformer-strace-") as folder:
        output = Path(folder) / "trace"
        strace = ["strace", "-f", "-y", "-qq", "-s", "1", "-o", str(output), "-e", f"trace={','.join(calls)}"]
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


def calls_of(trace: Trace, folder: Path) -> list[Call]:
    """The calls that name a file in a folder and may change it."""
    counts: dict[str, int] = {}
    calls = []
    for line in trace.lines:
        match = _LINE.match(line)
        if match is None:
            continue
        name = match[1]
        counts[name] = counts.get(name, 0) + 1
        if str(folder) in line and not (name == "openat" and not re.search("O_WRONLY|O_RDWR|O_CREAT", line)):
            calls.append(Call(name, counts[name], line))
    return calls
