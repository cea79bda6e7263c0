"""Detection of loops: outputs of small models sometimes repeat the same few tokens until the length limit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.search.session import IntArray

MAX_NGRAM = 8
"""Longest n-gram whose repetitions are counted."""


def ends_in_repeats(history: IntArray, count: int) -> NDArray[np.bool_]:
    """Return whether each row ends with an n-gram of at most :data:`MAX_NGRAM` tokens ``count`` times in a row.

    Args:
        history: tokens, ``(R, T)``.
        count: at least 2.

    Returns:
        One value per row, ``(R,)``.
    """
    rows, length = history.shape
    repeated = np.zeros(rows, dtype=bool)
    for size in range(1, min(MAX_NGRAM, length // count) + 1):
        ngrams = history[:, length - size * count :].reshape(rows, count, size)
        repeated |= (ngrams == ngrams[:, :1]).all(axis=(1, 2))
    return repeated
