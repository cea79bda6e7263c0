"""Stages of an export, as shown in progress reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage of the work."""

    text: str
    """Text shown while the stage is running."""


READ = Stage("Reading the model")
TRANSLATE = Stage("Translating a sample")
CHECK = Stage("Checking the model")
TRACE = Stage("Tracing the graphs")
OPTIMIZE = Stage("Optimizing the graphs")
CALIBRATE = Stage("Calibrating activations")
WEIGH = Stage("Calibrating 4-bit weights")
QUANTIZE = Stage("Quantizing the weights")
WRITE = Stage("Writing the bundle")
COMPARE = Stage("Comparing with PyTorch")
EXAMPLES = Stage("Choosing golden examples")
VERIFY = Stage("Verifying the bundle")
MEASURE = Stage("Measuring")

StageProgress = Callable[[Stage, float], None]
"""Called with a stage and the fraction of that stage done, 0 … 1."""


def silent(stage: Stage, fraction: float) -> None:
    """Do not report progress."""
