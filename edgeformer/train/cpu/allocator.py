"""Keep the C library from returning memory that training needs again at once."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep freed memory in the process if the C library is glibc; otherwise do nothing.

    By default, glibc returns large tensors to the system when they are freed, and each update gets them back page by
    page, which takes a twentieth of its time.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            libc.mallopt(option, _LARGEST)
