"""Parts of an export, as progress reports name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One part of the work."""

    text: str
    """What a person reads while it is being done."""


TRACE = Stage("Tracing the graphs")
OPTIMISE = Stage("Optimizing the graphs")
CALIBRATE = Stage("Calibrating activations")
WRITE = Stage("Writing the bundle")
COMPARE = Stage("Comparing with PyTorch")
EXAMPLES = Stage("Choosing golden examples")

StageProgress = Callable[[Stage, float], None]
"""Called with a stage and the fraction of it done, 0 … 1."""


def silent(stage: Stage, fraction: float) -> None:
    """Report nothing."""
