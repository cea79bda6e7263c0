"""Errors of training, beside those of the runtime.

::

    EdgeformerError            (edgeformer_runtime.errors)
    ├── ConfigError            (edgeformer_runtime.errors)
    ├── DataError              (edgeformer_runtime.errors)
    ├── TrainingError          training cannot continue
    └── CheckpointError        a run folder cannot be read
"""

from __future__ import annotations

from edgeformer_runtime.errors import ConfigError, DataError, EdgeformerError

__all__ = ["CheckpointError", "ConfigError", "DataError", "EdgeformerError", "TrainingError"]


class TrainingError(EdgeformerError):
    """Training cannot continue."""


class CheckpointError(EdgeformerError):
    """A run folder is missing, incomplete or damaged."""
