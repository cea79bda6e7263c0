"""Huge pages for weights on Linux: every step reads all weights, which is slower with 4 KiB pages."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np
from numpy.typing import NDArray

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_MADV_COLLAPSE = 25
"""Advice that moves a memory range into huge pages immediately (Linux 6.1; ``madvise(2)``)."""
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*(\[heap\])?$")
"""Matches lines of ``/proc/self/maps`` for anonymous memory."""
THREAD_NAME = "edgeformer-huge-pages"
MIN_BYTES = 2**22
"""Minimum amount of memory worth moving; smaller amounts are left as they are."""

Range = tuple[int, int]
"""First address (inclusive) and end address (exclusive)."""


@contextmanager
def huge_pages() -> Iterator[None]:
    """Move memory allocated in the ``with`` block into huge pages afterwards, in a background thread.

    The thread exits on its own, after about 2 ms per MiB. Does nothing if huge pages are unsupported or disabled.
    """
    supported = _is_supported()
    before = _anonymous_memory() if supported else []
    yield
    if supported:
        new = _without(_anonymous_memory(), before)
        if sum(end - begin for begin, end in new) >= MIN_BYTES:
            Thread(target=collapse, args=(new,), name=THREAD_NAME, daemon=True).start()


def collapse(ranges: list[Range]) -> int:
    """Move the fully used blocks of memory ranges into huge pages and return the number of bytes moved."""
    done = 0
    try:
        size, page = int((_SETTINGS / "hpage_pmd_size").read_text(encoding="ascii")), os.sysconf("SC_PAGE_SIZE")
        library = ctypes.CDLL(None)
        library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for begin, end in ranges:
            first, last = -(-begin // size) * size, end // size * size
            for block in np.flatnonzero(_blocks_in_use(first, last, size, page)).tolist():
                if library.madvise(first + block * size, size, _MADV_COLLAPSE) == 0:
                    done += size
    except (OSError, ValueError, AttributeError):
        pass  # huge pages are only an optimization
    return done


def _is_supported() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return "[never]" not in (_SETTINGS / "enabled").read_text(encoding="ascii")
    except OSError:
        return False


def _anonymous_memory() -> list[Range]:
    """Ranges of this process's writable anonymous memory, in order of address."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    matches = (_MAPPING.match(line) for line in lines if " rw-p " in line)
    return [(int(match[1], 16), int(match[2], 16)) for match in matches if match]


def _without(ranges: list[Range], others: list[Range]) -> list[Range]:
    """The parts of ``ranges`` that are not in ``others``; both must be in order of address."""
    rest = []
    for begin, end in ranges:
        for other_begin, other_end in others:
            if other_end <= begin or other_begin >= end:
                continue
            if other_begin > begin:
                rest.append((begin, other_begin))
            begin = max(begin, other_end)
        if begin < end:
            rest.append((begin, end))
    return rest


def _blocks_in_use(begin: int, end: int, size: int, page: int) -> NDArray[np.bool_]:
    """Whether all pages of each block of ``size`` bytes are in memory, so that a huge page takes no extra memory."""
    if end <= begin:
        return np.zeros(0, np.bool_)
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        pagemap.seek(begin // page * 8)
        entries = np.frombuffer(pagemap.read((end - begin) // page * 8), np.uint64)
    present = (entries >> np.uint64(63)).astype(np.bool_)
    blocks: NDArray[np.bool_] = np.logical_and.reduce(present.reshape(-1, size // page), axis=1)
    return blocks
