"""What becomes of a case, how much memory it takes, and which of that is a defect."""

from __future__ import annotations

import ctypes
import enum
import traceback
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.limits import MIB

MAX_MESSAGE = 2000
UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of characters that an error may not have: control characters, surrogates and line separators."""
_MALLINFO = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Outcome(enum.Enum):
    """The end of one case."""

    REFUSED = "refused"
    """One of our errors, in one line without control characters."""
    SAME = "same output"
    """Used, with the output of the undamaged bundle."""
    OTHER = "other output"
    """Used, with another output, which is possible for anyone who can rewrite the hashes."""
    FORGED = "undetected change"
    """Used, with another output, although hashes or a signature should have told."""
    ESCAPED = "escaped exception"
    """An exception that is not ours, or an error whose message is not one line of text."""
    MEMORY = "too much memory"
    """The limit of memory was exceeded."""

    @property
    def is_defect(self) -> bool:
        """Whether this must not happen."""
        return self not in (Outcome.REFUSED, Outcome.SAME, Outcome.OTHER)


class Result(NamedTuple):
    """How one case ended."""

    outcome: Outcome
    detail: str = ""
    """The error or the traceback."""


def guarded(run: Callable[[], Result]) -> Result:
    """The result of a call, or what its exception means."""
    try:
        return run()
    except EdgeformerError as error:
        if is_line(str(error)):
            return Result(Outcome.REFUSED, str(error))
        return Result(Outcome.ESCAPED, f"an error that is not one short line of text: {error!r}"[:MAX_MESSAGE])
    except MemoryError:
        return Result(Outcome.MEMORY, traceback.format_exc())
    except Exception:
        return Result(Outcome.ESCAPED, traceback.format_exc())


def is_line(message: str) -> bool:
    """Whether a message is one line that a terminal shows as it is: no control characters, no lone surrogates."""
    return len(message) <= MAX_MESSAGE and not any(unicodedata.category(char) in UNPRINTABLE for char in message)


def measured(run: Callable[[], Result], memory_mib: int) -> Result:
    """The result of a call, see :func:`guarded`, whose memory may rise by so much. Needs Linux."""
    import resource

    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # memory that an earlier test has freed would be used again without a trace
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
    before, size = memory_of("self"), memory_of("self", "VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * memory_mib * MIB, resource.RLIM_INFINITY))
    try:
        result = guarded(run)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    peak = (memory_of("self", "VmHWM") - before) // MIB
    if peak > memory_mib and not result.outcome.is_defect:
        return Result(Outcome.MEMORY, f"{peak} MiB; {result.detail}")
    return result


def memory_of(pid: int | str, name: str = "VmRSS") -> int:
    """A figure in ``/proc/PID/status``, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


@cache
def _mallinfo2() -> Callable[[], _MallInfo] | None:
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _MallInfo
    return function


def allocated() -> int:
    """Bytes that are allocated, in all arenas; 0 where the C library cannot tell. Leaves nothing allocated itself, but
    at the first call."""
    mallinfo2 = _mallinfo2()
    if mallinfo2 is None:
        return 0
    found = mallinfo2()
    return int(found.uordblks + found.hblkhd)
