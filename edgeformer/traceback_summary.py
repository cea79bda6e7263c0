"""A one-line summary of an exception in third-party code: its type, its message and the line to look at."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from traceback import FrameSummary

_OURS = ("edgeformer", "edgeformer_export", "edgeformer_runtime")


def describe(error: BaseException) -> str:
    """Summarize an exception as ``TypeError: message (/path/model.py:12)``.

    The line is the innermost one outside torch, preferably also outside this project. It is omitted if the only frames
    left are in the file that caught the exception.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A line such as "Found the following conflicts:" says nothing without the next one.
    text = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    summary = f"{type(error).__name__}: {text.removesuffix('.')}" if text else type(error).__name__
    frames: list[FrameSummary] = list(traceback.extract_tb(error.__traceback__))
    elsewhere = [
        frame
        for frame in frames
        if frame.filename != frames[0].filename
        and not frame.filename.startswith(("<frozen", "<string>"))
        and not _within(frame, "torch", "importlib")
    ]
    named = [frame for frame in elsewhere if not _within(frame, *_OURS)] or elsewhere
    return f"{summary} ({named[-1].filename}:{named[-1].lineno})" if named else summary


def _within(frame: FrameSummary, *packages: str) -> bool:
    """Whether a frame belongs to one of these packages; packages that are not loaded are ignored."""
    files = (getattr(sys.modules.get(package), "__file__", None) for package in packages)
    return any(file and Path(file).parent in Path(frame.filename).parents for file in files)
