"""Huge pages: memory is put into them as it is, and only what is new and in use throughout."""

from __future__ import annotations

import mmap
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeformer_runtime.engine import huge_pages
from edgeformer_runtime.engine.huge_pages import Range, _anonymous_memory, _blocks_in_use, _without, collapse

linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no madvise(2) with MADV_COLLAPSE but on Linux")
BLOCK = 2**21
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@pytest.mark.parametrize(
    ("ranges", "others", "expected"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(3, 5)], [(0, 3), (5, 10)]),
        ([(0, 10)], [(0, 3), (8, 12)], [(3, 8)]),
        ([(2, 4), (6, 9)], [(0, 3), (7, 8)], [(3, 4), (6, 7), (8, 9)]),
        ([(2, 4)], [(4, 6), (0, 2)], [(2, 4)]),
    ],
)
def test_what_is_new(ranges: list[Range], others: list[Range], expected: list[Range]) -> None:
    assert _without(ranges, others) == expected


@linux
def test_this_process_has_memory_of_its_own() -> None:
    array = np.ones(2**22, np.uint8)
    middle = array.ctypes.data + array.nbytes // 2
    assert any(first <= middle < last for first, last in _anonymous_memory())


@linux
def test_blocks_in_use_are_those_whose_pages_were_all_written_to() -> None:
    memory = fresh_memory(4)
    memory[:BLOCK] = 1
    pages = memory[2 * BLOCK :].reshape(-1, PAGE)
    pages[np.arange(len(pages)) != len(pages) // 2 + 5, 0] = 1
    begin = memory.ctypes.data
    assert _blocks_in_use(begin, begin + 4 * BLOCK, BLOCK, PAGE).tolist() == [True, False, True, False]


@linux
def test_collapsed_memory_holds_what_it_held() -> None:
    memory = fresh_memory(3)
    content = np.random.default_rng(0).integers(0, 256, 2 * BLOCK, np.uint8)
    memory[: 2 * BLOCK] = content  # the third block is never touched
    begin = memory.ctypes.data
    done = collapse([(begin, begin + 3 * BLOCK)])
    np.testing.assert_array_equal(memory[: 2 * BLOCK], content)
    if not done:
        pytest.skip("this kernel has no huge page to give, or no MADV_COLLAPSE")
    assert huge_bytes(begin) == done <= 2 * BLOCK


@linux
@pytest.mark.parametrize(
    ("mebibytes", "setting", "expected"), [(16, "madvise", 1), (1, "madvise", 0), (16, "never", 0)]
)
def test_only_much_new_memory_is_collapsed_and_only_where_the_system_may(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mebibytes: int, setting: str, expected: int
) -> None:
    (tmp_path / "enabled").write_text(" ".join(f"[{x}]" if x == setting else x for x in ("always", "madvise", "never")))
    calls: list[list[Range]] = []
    called = threading.Event()

    def record(ranges: list[Range]) -> int:
        calls.append(ranges)
        called.set()
        return 0

    monkeypatch.setattr(huge_pages, "_SETTINGS", tmp_path)
    monkeypatch.setattr(huge_pages, "collapse", record)
    monkeypatch.setattr(huge_pages, "MIN_BYTES", 2**23)
    with huge_pages.huge_pages():
        array = fresh_memory(mebibytes * 2**20 // BLOCK + 1)
        array[:] = 1
    assert called.wait(10 if expected else 0.2) == bool(expected)
    assert len(calls) == expected
    middle = array.ctypes.data + array.nbytes // 2
    assert all(any(first <= middle < last for first, last in ranges) for ranges in calls)


def test_nothing_happens_where_the_system_has_no_such_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huge_pages, "_SETTINGS", tmp_path / "missing")
    assert collapse([(0, 2**30)]) == 0
    with huge_pages.huge_pages():
        before = threading.active_count()
    assert threading.active_count() == before


def fresh_memory(blocks: int) -> NDArray[np.uint8]:
    """Untouched memory of so many blocks, the first of which begins at a multiple of a block's size."""
    memory = np.frombuffer(mmap.mmap(-1, (blocks + 1) * BLOCK, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    skip = -memory.ctypes.data % BLOCK
    return memory[skip : skip + blocks * BLOCK]


def huge_bytes(address: int) -> int:
    """Bytes in huge pages of the mapping at an address."""
    inside, total = False, 0
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(match[1], 16) <= address < int(match[2], 16)
        elif inside and line.startswith("AnonHugePages:"):
            total += int(line.split()[1]) * 1024
    return total
