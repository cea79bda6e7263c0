"""The result of every importer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.quantization import LinearScales
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.text_format import TextFormat

FloatArray = NDArray[np.float32]
Weights = dict[str, NDArray[np.floating[Any]]]
"""Arrays by the names of the model's parameters and stored buffers; shared ones once, under any of their names."""


@dataclass(frozen=True)
class Shortlist:
    """Candidates of a sentence: the first ``frequent`` ids, and the lists of its source tokens."""

    frequent: int
    """Ids below this are candidates of every sentence."""
    offsets: NDArray[np.int64]
    """Where each source token's list begins in ``tokens``, and where the last one ends, ``(V + 1,)``."""
    tokens: NDArray[np.int32]
    """Target ids of all lists."""

    def save(self, path: Path) -> None:
        """Write as an ``.npz`` file."""
        np.savez(path, frequent=np.int64(self.frequent), offsets=self.offsets, tokens=self.tokens)


@dataclass(frozen=True, kw_only=True)
class ImportedModel:
    """A model of another toolkit, in terms of this one."""

    model: Mapping[str, Any]
    """Section ``[model]`` of the recipe: the family and the fields of its configuration."""
    weights: Weights
    """The weights."""
    source_tokenizer: str
    """Content of the source side's ``tokenizer.json``."""
    target_tokenizer: str
    """Content of the target side's file; equal if both sides share one."""
    text: TextFormat
    """Names of the special tokens, and what is around the tokens of a text."""
    generation: Generation = field(default_factory=Generation)
    """Decoding defaults."""
    source_language: str = ""
    """BCP 47 tag, if the model states it."""
    target_language: str = ""
    """BCP 47 tag, if the model states it."""
    license: str = ""
    """License of the weights, if the model states it."""
    quantization: Mapping[str, LinearScales] = field(default_factory=dict)
    """Scales of quantized layers by the names of their parameters without ``.weight``; exported as int8, these keep
    their integers."""
    shortlist: Shortlist | None = None
    """Which target tokens each source token may become."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files that were read, by name."""
    notes: tuple[str, ...] = field(default=())
    """Differences from the original engine, and other facts that users should know, as sentences."""
