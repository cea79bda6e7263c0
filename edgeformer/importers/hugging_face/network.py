"""Weights under this project's names, each of the shape that the configuration demands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import Checkpoint
from edgeformer.importers.layout import modules, tied_tables
from edgeformer.importers.model import FloatArray, Weights

MAX_LENGTH = 1024
"""Tokens of a source or target, where positions have no limit."""
MAX_POSITIONS = 4096
"""Rows of a table of positions that is computed."""
SOURCE, TARGET, SHARED, OUTPUT = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "shared.weight",
    "lm_head.weight",
)
OUTPUT_BIAS = "final_logits_bias"


@dataclass(frozen=True, kw_only=True)
class Network:
    """The computation of a model, without its vocabulary and search."""

    model: Mapping[str, Any]
    """Section ``[model]`` of the recipe."""
    weights: Weights
    """Weights under this project's names."""
    rows: tuple[int, int]
    """Entries of the source and of the target embedding."""


class Conversion:
    """Moves the weights of a checkpoint to this project's names.

    Args:
        checkpoint: the weights.
        width: width of the embeddings and the residual stream (D).
    """

    def __init__(self, checkpoint: Checkpoint, width: int) -> None:
        self.checkpoint, self.width = checkpoint, width
        self.weights: Weights = {}

    def layers(self, section: Mapping[str, Any], names: Mapping[str, str]) -> None:
        """Convert all but the tables; see :func:`~edgeformer.importers.layout.modules`."""
        for module in modules(section, names):
            self.weights[f"{module.ours}.weight"] = self.checkpoint.take(f"{module.theirs}.weight", module.shape)
            if module.has_bias:
                self.weights[f"{module.ours}.bias"] = self.checkpoint.take(f"{module.theirs}.bias", module.shape[:1])

    def tables(self, source_rows: int, target_rows: int, *, tied: bool, shared: bool = True) -> str:
        """Convert the embeddings and the output projection.

        As in ``transformers``, tables that the configuration ties, but the checkpoint has with different values, are
        not tied.

        Args:
            source_rows: entries of the source embedding.
            target_rows: entries of the target embedding and of the projection.
            tied: whether the output projection is tied to an embedding.
            shared: whether both embeddings are tied.

        Returns:
            Which tables are tied; see ``tied_embeddings`` of the Transformer's configuration.

        Raises:
            ImporterError: a table is missing, or has another number of entries.
        """
        # Where each is, by preference: checkpoints have tied tables under one of their names, or under several.
        output_names = (OUTPUT,) if tied else ()
        embeddings = (SHARED, TARGET, SOURCE) if shared else (TARGET,)
        source = self._table(source_rows, SOURCE, *((*embeddings, *output_names) if shared else ()))
        target = self._table(target_rows, TARGET, *embeddings, *output_names)
        output = self._table(target_rows, OUTPUT, *(embeddings if tied else ()))
        if SHARED in self.checkpoint and shared:
            self.checkpoint.take(SHARED)
        tying, tables = tied_tables(source, target, output)
        self.weights |= tables
        return tying

    def output_bias(self, rows: int) -> bool:
        """Convert the bias of the output projection; return whether there is one, other than zero."""
        if OUTPUT_BIAS not in self.checkpoint:
            return False
        bias = self.checkpoint.take(OUTPUT_BIAS, (1, rows)).reshape(-1)
        if not bias.any():
            return False
        self.weights["projection.bias"] = bias
        return True

    def finish(self, ignored: str) -> Weights:
        """Return the weights.

        Args:
            ignored: pattern of names that ``transformers`` ignores as well.

        Raises:
            ImporterError: the checkpoint has others that the architecture lacks.
        """
        surplus = [name for name in self.checkpoint.surplus() if not re.fullmatch(ignored, name)]
        if surplus:
            names = ", ".join(f"`{name[:80]}`" for name in surplus[:3])
            raise ImporterError(f"The architecture has no place for {len(surplus)} of the weights, such as {names}.")
        return self.weights

    def _table(self, rows: int, *names: str) -> FloatArray:
        """The first of these tables that the checkpoint has."""
        name = next((name for name in names if name in self.checkpoint), names[0])
        return self.checkpoint.take(name, (rows, self.width))
