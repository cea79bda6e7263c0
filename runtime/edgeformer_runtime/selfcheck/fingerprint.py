"""Tensor fingerprints: a few numbers from which the difference between two tensors can be estimated."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

Fingerprint = tuple[float, ...]
"""Root mean square of a tensor, followed by its projections: randomly signed sums of all values, divided by the square
root of the number of values. The projections of two tensors differ by about the root mean square of the tensors'
difference, wherever in the tensors it lies."""

PROJECTIONS = 6
NOT_FINITE: Fingerprint = (-1.0,)
"""Fingerprint of a tensor with NaN or infinite values."""


def fingerprint(array: NDArray[np.generic]) -> Fingerprint:
    """Compute the fingerprint of a numeric tensor of any shape and dtype, to six significant digits."""
    values = np.asarray(array, np.float64).ravel()
    if not np.isfinite(values).all():
        return NOT_FINITE
    root = np.sqrt(max(1, values.size))
    numbers = [np.sqrt(np.square(values).sum()), *(values @ _signs(values.size, index) for index in range(PROJECTIONS))]
    return tuple(float(f"{number / root:.6g}") for number in numbers)


def relative_difference(actual: Fingerprint, expected: Fingerprint) -> float:
    """Estimate the root mean square of the difference between two tensors, relative to that of the expected tensor.

    Typically within 50 % of the true value. Infinite if only one of the tensors has NaN or infinite values.
    """
    if len(actual) != len(expected):
        return inf
    if expected == NOT_FINITE:
        return 0.0
    difference = np.sqrt(np.mean(np.square(np.subtract(actual[1:], expected[1:]))))
    return _ratio(float(difference), expected[0])


def relative_error(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """Root mean square of the difference between two tensors of equal size, relative to that of the expected tensor.

    Infinite if ``actual`` has NaN or infinite values.
    """
    reference = np.asarray(expected, np.float64).ravel()
    difference = np.asarray(actual, np.float64).ravel() - reference
    if not np.isfinite(difference).all():
        return inf
    return _ratio(float(np.linalg.norm(difference)), float(np.linalg.norm(reference)))


def _ratio(difference: float, size: float) -> float:
    return 0.0 if difference == 0 else difference / size if size > 0 else inf


def _signs(count: int, index: int) -> NDArray[np.float64]:
    """Pseudorandom signs, +1 or -1, from a hash of each position."""
    position = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (position ^ (position >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return 1.0 - 2.0 * ((mixed >> np.uint64(63 - index)) & np.uint64(1)).astype(np.float64)
