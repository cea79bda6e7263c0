"""What a grid measures, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PRESETS = ("tiny", "edge", "base")
WORKLOADS = {"1x1": (1, 1), "1x4": (1, 4), "32x1": (32, 1), "32x4": (32, 4)}
"""Sentences per call and hypotheses kept, by name."""
LENGTHS = (10, 20, 60)
"""Source lengths of a full grid."""
THREADS = (1, 2)
"""Threads of a full grid."""
OURS = "edgeformer"
"""Name of the group of our bundles, used alongside the names of peers."""
SLOW = "torch-compile"
"""Peer that compiles for minutes for every new number of rows; measured with ``--full`` or on request."""


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """What to measure, and for how long."""

    work: Path
    """Folder for the models."""
    results: Path
    """JSON file for the results."""
    presets: Sequence[str]
    """Entries of :data:`PRESETS`."""
    workloads: Sequence[str]
    """Keys of :data:`WORKLOADS`."""
    lengths: Sequence[int]
    """Source lengths in tokens."""
    threads: Sequence[int]
    """Numbers of threads."""
    systems: Sequence[str]
    """:data:`OURS` and names of peers."""
    precisions: Sequence[str]
    """Precisions of our bundles."""
    vocab_size: int
    """Vocabulary size of the presets."""
    rounds: int
    """Measured rounds per cell."""
    seconds: float
    """Time limit per cell, in seconds."""
    starts: int
    """Number of fresh processes per system, to measure load time and memory."""
    pythons: Mapping[str, str]
    """Python interpreters of peers that have an environment of their own; empty for the current one."""
