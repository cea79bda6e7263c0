"""The most probable extensions of a sentence's hypotheses: what beam search needs from the logits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from edgeformer_runtime.search.session import FloatArray, IntArray

CHUNK_COST = 80
"""Time to compute the maximum of one more chunk, relative to the time to scan one value of a chunk."""
MIN_CHUNK = 16
"""Minimum number of logits in a chunk of :func:`largest`; shorter rows are not divided into chunks."""


def best_tokens(
    logits: FloatArray, log_probability: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], IntArray, IntArray]:
    """Find each sentence's ``count`` most probable extensions of its K hypotheses by one token, in numpy.

    Args:
        logits: ``(N * K, V)``, float32; overwritten.
        log_probability: log-probability of each hypothesis, ``(N, K)``, float64; ``-inf`` if it may not be extended.
        count: number of extensions; fewer are returned if fewer exist.

    Returns:
        Log-probabilities ``(N, count)``, float64, best first; tokens ``(N, count)``; and the hypothesis that each of
        them extends, ``(N, count)``, from 0 to K - 1. Ties go to the first hypothesis, then to the lowest token. If a
        row has a NaN logit or no finite one, all log-probabilities of its sentence are NaN.
    """
    # A sentence's best extensions are among the best of its rows, so that K times `count` values are left to sort.
    value, token = most_probable(logits, count)
    sentences, width = len(log_probability), value.shape[1]
    total = (log_probability.reshape(-1, 1) + value).reshape(sentences, -1)
    index = np.argsort(-total, axis=1, kind="stable")[:, :count]
    parent = index // width
    if sentences > 1:  # from positions within a sentence to positions within the batch
        index += np.arange(sentences)[:, None] * total.shape[1]
    best = total.ravel()[index]
    if not np.isfinite(value[:, 0]).all():
        best[~np.isfinite(value[:, 0]).reshape(sentences, -1).all(axis=1)] = np.nan
    return best, token.ravel()[index], parent


def most_probable(logits: FloatArray, count: int) -> tuple[FloatArray, IntArray]:
    """Find the ``count`` most probable tokens of each row.

    Args:
        logits: ``(R, V)``, float32; overwritten.
        count: number of tokens; fewer are returned if V is smaller.

    Returns:
        Log-probabilities ``(R, count)``, best first, and tokens ``(R, count)``; ties go to the lowest id. If a row has
        a NaN logit or no finite one, its best log-probability is not finite.
    """
    value, token = largest(logits, count)
    with np.errstate(invalid="ignore"):
        return value - log_sum_exp(logits, value[:, :1]), token


def log_sum_exp(logits: FloatArray, peak: FloatArray) -> FloatArray:
    """Compute the logarithm of the sum of exponentials of each row, ``(R, 1)``.

    Args:
        logits: ``(R, V)``, float32; overwritten.
        peak: largest logit of each row, ``(R, 1)``.
    """
    np.subtract(logits, peak, out=logits)
    np.exp(logits, out=logits)
    total: FloatArray = peak + np.log(logits.sum(axis=1, keepdims=True))
    return total


def largest(logits: FloatArray, count: int) -> tuple[FloatArray, IntArray]:
    """Find the ``count`` largest values of each row, in descending order, and their positions.

    Ties go to the lowest position.

    If a row contains a NaN, all values returned for that row are NaN.

    Args:
        logits: ``(R, V)``.
        count: number of values; fewer are returned if V is smaller.
    """
    rows, width = logits.shape
    count = min(count, width)
    # 1. Split each row into chunks. Each costs one maximum, and each of the `count` that step 4 scans a pass over its
    #    values: `size` makes the sum of both smallest.
    size = min(math.isqrt(CHUNK_COST * width // count), width // (2 * count))
    chunks = width // size if size >= MIN_CHUNK else 0
    whole = chunks * size
    grid = logits[:, :whole].reshape(rows, chunks, size)
    # 2. Take the maximum of each chunk, (R, chunks + rest): leftover values that fill no chunk are their own maxima.
    peaks = np.concatenate((grid.max(axis=2, initial=-np.inf), logits[:, whole:]), axis=1)
    if np.isnan(peak := peaks.max(axis=1)).any():
        return np.broadcast_to(peak[:, None], (rows, count)), np.zeros((rows, count), np.int64)
    # 3. Find the `count`-th largest maximum of each row. There are `count` values that large, one in each of as many
    #    chunks, so that no smaller value is wanted, and no chunk whose maximum is smaller.
    groups = peaks.shape[1]
    bound = np.partition(peaks, groups - count, axis=1)[:, groups - count]
    row, group = np.divmod(np.flatnonzero(peaks >= bound[:, None]), groups)
    # 4. Scan the chunks that are left for values of at least the bound, and add the leftover values.
    inside = group < chunks
    chunk_row, chunk = row[inside], group[inside]
    hit, offset = np.divmod(np.flatnonzero(grid[chunk_row, chunk] >= bound[chunk_row, None]), max(1, size))
    row = np.concatenate((chunk_row[hit], row[~inside]))
    position = np.concatenate((chunk[hit] * size + offset, group[~inside] - chunks + whole))
    # 5. Sort what was found, hardly more than `count` values per row, by row, value and position, and take the first
    #    `count` of each row.
    value = logits[row, position]
    order = np.lexsort((position, -value, row))
    first = np.searchsorted(row[order], np.arange(rows))
    best = order[first[:, None] + np.arange(count)]
    return value[best], position[best]
