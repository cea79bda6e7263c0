"""Errors of training and data, beside those of the runtime.

::

    EdgeformerError            (edgeformer_runtime.errors)
    ├── ConfigError            a recipe or an option is wrong
    ├── DataError              a corpus cannot be read, or holds nothing to train on
    ├── TrainingError          training cannot go on
    └── CheckpointError        a run folder cannot be read
"""

from __future__ import annotations

from edgeformer_runtime.errors import EdgeformerError

__all__ = ["CheckpointError", "ConfigError", "DataError", "EdgeformerError", "TrainingError"]


class ConfigError(EdgeformerError):
    """A recipe or an option is wrong."""


class DataError(EdgeformerError):
    """A corpus cannot be read, or holds nothing to train on."""


class TrainingError(EdgeformerError):
    """Training cannot go on."""


class CheckpointError(EdgeformerError):
    """A run folder is missing, incomplete or damaged."""
