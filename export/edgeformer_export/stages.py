"""Stages of an export, as shown in progress reports."""

from __future__ import annotations

from collections.abc import Callable

READ = "Reading the model"
TRANSLATE = "Translating a sample"
CHECK = "Checking the model"
TRACE = "Tracing the graphs"
OPTIMIZE = "Optimizing the graphs"
CALIBRATE = "Calibrating activations"
WEIGH = "Calibrating 4-bit weights"
QUANTIZE = "Quantizing the weights"
WRITE = "Writing the bundle"
COMPARE = "Comparing with PyTorch"
EXAMPLES = "Choosing golden examples"

StageProgress = Callable[[str, float], None]
"""Called with a stage and the fraction of that stage done, 0 … 1."""


def silent(stage: str, fraction: float) -> None:
    """Do not report progress."""
