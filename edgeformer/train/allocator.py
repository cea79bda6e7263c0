"""How the C library treats memory that training frees and needs again at once."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep memory in the process once it has it, where the C library is glibc; elsewhere do nothing.

    By default large tensors go back to the system when they are freed, and every update takes them anew, page by page:
    a twentieth of its time.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            libc.mallopt(option, _LARGEST)
