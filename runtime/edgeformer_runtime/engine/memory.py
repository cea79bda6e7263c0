"""Peak memory of this process."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_memory_mb() -> float | None:
    """Return the peak resident memory of this process so far, in 10^6 bytes; ``None`` on Windows."""
    try:  # Linux's own figure; getrusage may report that of the parent process
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ModuleNotFoundError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
