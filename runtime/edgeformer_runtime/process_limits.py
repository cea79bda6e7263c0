"""Limits of a process that reads a file from a stranger."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""The operation of Linux's ``prctl`` that has the system send a signal to this process when its parent ends."""


def limit_process(memory: int, seconds: int) -> None:
    """Limit this process, where the system can, and let it end with its parent.

    Args:
        memory: bytes of its address space.
        seconds: processor time.
    """
    with suppress(ModuleNotFoundError):
        import resource

        limits = {"RLIMIT_AS": memory, "RLIMIT_CPU": seconds, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
        for name, value in limits.items():
            with suppress(OSError, ValueError):  # macOS does not limit address spaces
                resource.setrlimit(getattr(resource, name), (value, value))
        os.nice(10)  # so that its parent's work is done first
    with suppress(OSError, AttributeError, TypeError):  # not Linux; there, it ends when it writes its answer
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # rather this process than its parent
