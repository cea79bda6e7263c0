"""A family of models, as ``model_type`` of ``config.json`` names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeformer.importers.hugging_face.checkpoint import Checkpoint, Rows
from edgeformer.importers.hugging_face.entries import ModelVocabulary
from edgeformer.importers.hugging_face.model_folder import ModelFolder


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """What is special about the models of a family."""

    convert: Callable[[Mapping[str, Any], Checkpoint], tuple[dict[str, Any], Rows]]
    """Takes ``config.json`` and a checkpoint, whose weights it converts; returns section ``[model]`` of the recipe, and
    the rows of both embeddings."""
    vocabulary: Callable[[ModelFolder, Rows], ModelVocabulary]
    """Reads the tokenizers, and says what is around a text."""
    notes: tuple[str, ...] = ()
    """Differences from the original models, as sentences."""
