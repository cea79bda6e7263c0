"""The embeddings and the output projection, tied as configured."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from edgeformer.model.fields import Tying


class VocabularyTables(NamedTuple):
    """Modules that may share a weight."""

    source: nn.Embedding
    """Weight ``(source vocabulary, D)``."""
    target: nn.Embedding
    """Weight ``(V, D)``."""
    projection: nn.Linear
    """Weight ``(V, D)``."""


def vocabulary_tables(
    source_vocab_size: int, target_vocab_size: int, width: int, tied: Tying, *, bias: bool = False
) -> VocabularyTables:
    """Make the tables; all weights have a standard deviation of ``width ** -0.5``, which suits scaling and tying.

    Args:
        source_vocab_size: entries of the source embedding.
        target_vocab_size: entries of the target embedding and of the output projection.
        width: width of all tables (D).
        tied: tables that share one weight.
        bias: whether the projection has a bias.

    Raises:
        ValueError: both embeddings are tied, but the vocabularies differ in size.
    """
    if tied in {"all", "inputs"} and source_vocab_size != target_vocab_size:
        raise ValueError(
            f'`tied_embeddings` = "{tied}" needs one vocabulary for both sides, but the vocabularies have '
            f"{source_vocab_size} and {target_vocab_size} entries."
        )
    target = nn.Embedding(target_vocab_size, width)
    source = target if tied in {"all", "inputs"} else nn.Embedding(source_vocab_size, width)
    projection = nn.Linear(width, target_vocab_size, bias=bias)
    if tied in {"all", "decoder"}:
        projection.weight = target.weight
    for weight in dict.fromkeys((source.weight, target.weight, projection.weight)):
        nn.init.normal_(weight, std=width**-0.5)
    if bias:
        nn.init.zeros_(projection.bias)
    return VocabularyTables(source, target, projection)
