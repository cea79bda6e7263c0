"""Ends a program at each of its system calls that change the disk, and looks at what is left."""

from __future__ import annotations

import enum
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgeformer_runtime.errors import EdgeformerError
from robustness.interruptions.strace import Call, calls_of, traced
from robustness.interruptions.writing import Content, Writing, content_of, recovered


class Left(enum.Enum):
    """What has the name after a program was ended, or the power failed."""

    OLD = "old"
    """All of the old content; nothing, if there was nothing before."""
    NEW = "new"
    """All of the new content."""
    RESTORED = "old, restored"
    """All of the old content, which got its name back at the next use."""
    LOST = "neither"
    """Anything else, which is a defect."""


class Moment(msgspec.Struct, frozen=True):
    """What an interruption at one moment left."""

    left: Left
    when: str
    """The system call at which it happened."""


def judged(target: Path, old: Content | None, new: Content, when: str) -> Moment:
    """Tell what has the name ``target``, before and after recovery."""
    before = content_of(target)
    try:
        after = recovered(target)
    except EdgeformerError as error:
        return Moment(Left.LOST, f"{when}: {error}")
    if after == new:
        return Moment(Left.NEW, when)
    if after == old:
        return Moment(Left.OLD if before == old else Left.RESTORED, when)
    return Moment(Left.LOST, when)


def kills(writing: Writing, folder: Path) -> Iterator[tuple[int, Moment]]:
    """End a program at each system call; yields the number of calls and what each left.

    Args:
        writing: the program.
        folder: an empty folder.

    Raises:
        RuntimeError: the program fails by itself, or does not make the same calls each time.
    """
    source, target = writing.prepare(folder)
    old, kept = content_of(target), folder / "kept"
    shutil.copytree(target.parent, kept)
    trace = traced(writing.program, source, target, inject=writing.inject)
    if trace.status:
        raise RuntimeError(trace.stderr)
    new = content_of(target)
    assert new is not None
    calls = calls_of(trace, target.parent)
    for call in calls:
        shutil.rmtree(target.parent)
        shutil.copytree(kept, target.parent)
        end_at(writing, source, target, call)
        yield len(calls), judged(target, old, new, f"killed at {call.name} {call.number}")


def end_at(writing: Writing, source: Path, target: Path, call: Call) -> None:
    """Run a program up to a system call, which is not made.

    Raises:
        RuntimeError: it does not make that call.
    """
    fault = f"{call.name}:signal=SIGKILL:when={call.number}"
    # Of two faults for a call, strace obeys the later.
    inject = [entry for entry in writing.inject if not entry.startswith(f"{call.name}:")]
    if len(inject) < len(writing.inject):
        fault = f"{call.name}:error=EINVAL:signal=SIGKILL:when={call.number}"
    trace = traced(writing.program, source, target, inject=(*inject, fault))
    if trace.status not in (-signal.SIGKILL, 128 + signal.SIGKILL):
        raise RuntimeError(f"The program was not ended at {call.line}: {trace.stderr}")
