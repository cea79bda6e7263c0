"""What can become of a case, and which of it is a defect."""

from __future__ import annotations

import enum

import msgspec


class Outcome(enum.Enum):
    """The end of one case."""

    REFUSED = "refused"
    """One of our errors, in one line without control characters."""
    SAME = "same output"
    """Used, with the output of the undamaged bundle."""
    OTHER = "other output"
    """Used, with another output: what somebody who may write the hashes, too, can always have."""
    FORGED = "undetected change"
    """Used, with another output, although hashes or a signature should have told."""
    ESCAPED = "escaped exception"
    """An exception that is none of ours, or an error whose message is not one line of text."""
    CRASHED = "crash"
    """The process died."""
    HUNG = "hang"
    """The time limit was exceeded."""
    MEMORY = "too much memory"
    """The limit of memory was exceeded."""

    @property
    def is_defect(self) -> bool:
        """Whether this must not happen."""
        return self not in (Outcome.REFUSED, Outcome.SAME, Outcome.OTHER)


class Result(msgspec.Struct, frozen=True):
    """How one case ended."""

    outcome: Outcome
    detail: str = ""
    """The error or the traceback."""
    peak_mib: float = 0.0
    """How far memory rose during the case."""
