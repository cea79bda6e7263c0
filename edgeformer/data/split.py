"""Splitting of a corpus so that no source sentence is on two sides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from edgeformer.data.text import Pair
from edgeformer.errors import DataError


class Split(NamedTuple):
    """Three parts that share no source sentence, each in the corpus's order."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def split_by_source(pairs: Sequence[Pair], *, valid_size: int, test_size: int, seed: int) -> Split:
    """Split by a hash of the source sentence; all pairs of one source go to one part.

    The part of a sentence depends on the seed and the set of source sentences, not on their order or repetition.

    Args:
        pairs: source and target sentences.
        valid_size: distinct source sentences for validation; the number of pairs can be larger.
        test_size: the same for the test.
        seed: another seed gives another split.

    Raises:
        DataError: no source sentence would be left to train on.
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
