"""Splitting of a corpus so that no source sentence is in two parts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from edgeformer.data.text import Pair
from edgeformer.errors import DataError


class Split(NamedTuple):
    """Three parts that share no source sentence, in the order of the corpus."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def split_by_source(pairs: Sequence[Pair], *, valid_size: int, test_size: int, seed: int) -> Split:
    """Split by a hash of the source sentence; all pairs of a source go to the same part.

    The part depends on the seed and the set of source sentences, not on their order or repetitions.

    Args:
        pairs: source and target sentences.
        valid_size: number of distinct source sentences for validation; there may be more pairs.
        test_size: number of distinct source sentences for testing.
        seed: determines the split.

    Raises:
        DataError: no source sentence would be left for training.
    """
    sources = {source for source, _ in pairs}
    if len(sources) <= valid_size + test_size:
        raise DataError(
            f"The corpus must have more than {valid_size + test_size:,} distinct source sentences "
            f"(`data.valid_size` + `data.test_size`), but has {len(sources):,}; lower these sizes or add text."
        )
    key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
    ranked = sorted(sources, key=lambda source: (_digest(source, key), source))
    test = set(ranked[:test_size])
    valid = set(ranked[test_size : test_size + valid_size])
    split = Split([], [], [])
    for pair in pairs:
        part = split.test if pair[0] in test else split.valid if pair[0] in valid else split.train
        part.append(pair)
    return split


def _digest(source: str, key: bytes) -> bytes:
    return hashlib.blake2b(source.encode("utf-8"), digest_size=8, key=key).digest()
