"""The most probable extensions of a sentence's hypotheses: what beam search wants of logits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.decoding.session import FloatArray, IntArray

CHUNK_COST = 80
"""Time to take the maximum of one more chunk, in times that one value of a chunk takes to be looked at."""
MIN_CHUNK = 16
"""Least logits in a chunk of :func:`largest`; shorter rows are looked through as a whole."""


def best_tokens(
    logits: FloatArray, log_probability: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], IntArray, IntArray]:
    """The ``count`` most probable ways to extend one of a sentence's K hypotheses by a token, with numpy alone.

    Args:
        logits: ``(N * K, V)``; their memory is used up.
        log_probability: of the hypotheses, ``(N, K)``, float64; ``-inf`` for one that may not be extended.
        count: extensions wanted; all, if there are fewer.

    Returns:
        Log-probabilities ``(N, count)``, float64, best first; tokens ``(N, count)``; and which of the sentence's
        hypotheses each extends, ``(N, count)``. Of equal ones, the first hypothesis and the lowest token come first. A
        sentence that has a row without a finite logit, or with one that is not a number, has only NaN for
        log-probabilities.
    """
    best, token = most_probable(logits, count)
    sentences = len(log_probability)
    total = (log_probability.reshape(-1, 1) + best).reshape(sentences, -1)
    place = np.argsort(-total, axis=1, kind="stable")[:, :count]
    value = np.take_along_axis(total, place, axis=1)
    value[~np.isfinite(best[:, 0]).reshape(sentences, -1).all(axis=1)] = np.nan
    return value, np.take_along_axis(token.reshape(sentences, -1), place, axis=1), place // token.shape[1]


def most_probable(logits: FloatArray, count: int) -> tuple[FloatArray, IntArray]:
    """The ``count`` most probable tokens of each row.

    Args:
        logits: ``(R, V)``; their memory is used up.
        count: tokens wanted; all, if there are fewer.

    Returns:
        Log-probabilities ``(R, count)``, best first, and tokens ``(R, count)``; of equal ones the lowest id first. A
        row without a finite logit, or with one that is not a number, has no finite best log-probability.
    """
    value, token = largest(logits, count)
    with np.errstate(invalid="ignore"):
        return value - log_sum_exp(logits, value[:, :1]), token


def log_sum_exp(logits: FloatArray, peak: FloatArray) -> FloatArray:
    """Logarithm of the sum of exponentials of each row, ``(R, 1)``.

    Args:
        logits: ``(R, V)``; their memory is used up.
        peak: largest of each row, ``(R, 1)``.
    """
    np.subtract(logits, peak, out=logits)
    np.exp(logits, out=logits)
    total: FloatArray = peak + np.log(logits.sum(axis=1, keepdims=True))
    return total


def largest(logits: FloatArray, count: int) -> tuple[FloatArray, IntArray]:
    """The ``count`` largest of each row, largest first, and their positions; of equal ones, the lowest position first.

    A row is taken in chunks. Only those chunks are looked into whose largest value is among the ``count`` largest of
    all chunks, since the others hold nothing that large. If a row has a value that is not a number, so are all.

    Args:
        logits: ``(R, V)``.
        count: values wanted; all, if a row has fewer.
    """
    rows, width = logits.shape
    count = min(count, width)
    # Each chunk costs a call of its maximum, each of the `count` that are looked into a pass over its values.
    size = min(math.isqrt(CHUNK_COST * width // count), width // (2 * count))
    chunks = width // size if size >= MIN_CHUNK else 0
    whole = chunks * size
    grid = logits[:, :whole].reshape(rows, chunks, size)
    # (R, chunks + rest): what fills no chunk stands for itself
    peaks = np.concatenate((grid.max(axis=2, initial=-np.inf), logits[:, whole:]), axis=1)
    if np.isnan(peak := peaks.max(axis=1)).any():
        return np.broadcast_to(peak[:, None], (rows, count)), np.zeros((rows, count), np.int64)
    groups = peaks.shape[1]
    bound = np.partition(peaks, groups - count, axis=1)[:, groups - count]
    row, group = np.divmod(np.flatnonzero(peaks >= bound[:, None]), groups)
    inside = group < chunks
    chunk_row, chunk = row[inside], group[inside]
    found, offset = np.divmod(np.flatnonzero(grid[chunk_row, chunk] >= bound[chunk_row, None]), max(1, size))
    row = np.concatenate((chunk_row[found], row[~inside]))
    position = np.concatenate((chunk[found] * size + offset, group[~inside] - chunks + whole))
    value = logits[row, position]
    order = np.lexsort((position, -value, row))
    first = np.searchsorted(row[order], np.arange(rows))
    best = order[first[:, None] + np.arange(count)]
    return value[best], position[best]
