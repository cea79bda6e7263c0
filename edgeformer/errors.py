"""Errors of training, beside those of the runtime.

::

    EdgeformerError            (edgeformer_runtime.errors)
    ├── ConfigError            (edgeformer_runtime.errors)
    ├── DataError              (edgeformer_runtime.errors)
    ├── TrainingError          training cannot continue
    ├── CheckpointError        a run folder cannot be read
    └── ImporterError          a model of another toolkit cannot be read or represented
"""

from __future__ import annotations

from edgeformer_runtime.errors import ConfigError, DataError, EdgeformerError

__all__ = ["CheckpointError", "ConfigError", "DataError", "EdgeformerError", "ImporterError", "TrainingError"]


class TrainingError(EdgeformerError):
    """Training cannot continue."""


class CheckpointError(EdgeformerError):
    """A run folder is missing, incomplete or damaged."""


class ImporterError(EdgeformerError):
    """A model of another toolkit is damaged, or has something that the model families cannot represent."""
